// The metric plugins of a run, each called within the guard of its slot.
#pragma once

#include <string>
#include <vector>

#include <trainyard/metric.hpp>

#include "core/engine/distributed/world.hpp"
#include "core/engine/train/guard.hpp"

namespace trainyard::train {

using MetricSlots = std::vector<Filled<Metric>>;

inline void reset(const MetricSlots& metrics, std::int64_t step) {
  for (const auto& [slot, metric] : metrics) guarded(*slot, step, [&] { metric->reset(); });
}

inline void update(const MetricSlots& metrics, std::int64_t step, const at::Tensor& output,
                   const at::Tensor& loss, const Batch& batch) {
  for (const auto& [slot, metric] : metrics)
    guarded(*slot, step, [&] { metric->update(output, loss, batch); });
}

/// Merges each metric over all ranks.
void merge(const MetricSlots& metrics, std::int64_t step, distributed::World& world);

/// Calls `take` with "train/accuracy", or "train/top_k.top_5" for a metric with several values.
template <class Take>
void each_value(const MetricSlots& metrics, std::int64_t step, const std::string& prefix, Take&& take) {
  for (const auto& [slot, metric] : metrics)
    guarded(*slot, step, [&, slot = slot, metric = metric] {
      const std::vector<std::string> names = metric->names();
      const std::vector<double> values = metric->compute();
      for (std::size_t i = 0; i < values.size(); ++i)
        take(prefix + "/" + slot->id + (values.size() == 1 ? "" : "." + names.at(i)), values[i]);
    });
}

}  // namespace trainyard::train
