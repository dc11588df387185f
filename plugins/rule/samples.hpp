// Samples of the machine and of the run's phases (recorder.hpp lists them), as profiler rules gather them.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "findings.hpp"
#include "memory.hpp"

namespace rules {

using namespace trainyard;

/// The numbers of a tensor, one for each core, GPU or step; none where the record lacks it.
inline std::vector<double> samples(const StepRecord& record, std::string_view name) {
  const TensorRecord* tensor = record.find(name);
  if (tensor == nullptr) return {};
  return numbers_of(values_of(*tensor));
}

/// Their mean.
inline std::optional<double> sample(const StepRecord& record, std::string_view name) {
  const std::vector<double> all = samples(record, name);
  if (all.empty()) return std::nullopt;
  double sum = 0.0;
  for (const double each : all) sum += each;
  return sum / static_cast<double>(all.size());
}

/// The newest samples of several quantities, by name, and how many were taken in all.
struct SampleWindows {
  std::int64_t samples = 0;
  ByTensor<std::deque<double>> of;

  void remember(StateWriter& state) const {
    state.scalar("samples", samples);
    rules::remember(state, "windows", of);
  }
  void recall(const StateReader& state) {
    samples = state.integer("samples");
    of = recall_series(state, "windows");
  }
};

/// Appends, and lets the oldest go beyond `most`.
inline void append(std::deque<double>& window, double number, std::int64_t most) {
  window.push_back(number);
  while (std::ssize(window) > most) window.pop_front();
}

}  // namespace rules
