#include "core/engine/train/metric_slots.hpp"

#include <trainyard/state.hpp>

#include "core/engine/distributed/together.hpp"

namespace trainyard::train {

void merge(const MetricSlots& metrics, std::int64_t step, distributed::World& world) {
  std::vector<State> own(metrics.size());
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    own[i].owner = metrics[i].slot->address();
    StateWriter writer(own[i]);
    guarded(*metrics[i].slot, step, [&] { metrics[i].plugin->save(writer); });
  }
  const std::vector<std::vector<State>> all = distributed::gather(world, own);
  for (std::size_t i = 0; i < metrics.size(); ++i)
    guarded(*metrics[i].slot, step, [&] {
      metrics[i].plugin->reset();
      for (const std::vector<State>& rank : all) metrics[i].plugin->merge(StateReader(rank.at(i)));
    });
}

}  // namespace trainyard::train
