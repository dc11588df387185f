// Samples of the machine and of the run's phases (recorder.hpp lists them), as profiler rules gather them.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "rule_findings.hpp"

namespace trainyard {

/// The numbers of a tensor, one for each core, GPU or step; none where the record lacks it.
inline std::vector<double> samples(const StepRecord& record, std::string_view name) {
  const TensorRecord* tensor = record.find(name);
  if (tensor == nullptr) return {};
  const at::Tensor flat = values_of(*tensor).to(at::kDouble).contiguous();
  const double* first = flat.const_data_ptr<double>();
  return {first, first + flat.numel()};
}

/// Their mean.
inline std::optional<double> sample(const StepRecord& record, std::string_view name) {
  const std::vector<double> all = samples(record, name);
  if (all.empty()) return std::nullopt;
  double sum = 0.0;
  for (const double each : all) sum += each;
  return sum / static_cast<double>(all.size());
}

/// Appends, and lets the oldest go beyond `most`.
inline void append(std::deque<double>& window, double number, std::int64_t most) {
  window.push_back(number);
  while (std::ssize(window) > most) window.pop_front();
}

}  // namespace trainyard
