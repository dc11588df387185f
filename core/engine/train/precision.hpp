// The number formats that a run computes in: trainer.precision.
#pragma once

#include <ATen/autocast_mode.h>

#include "core/runfile/run_config.hpp"

namespace trainyard::train {

using Precision = config::TrainerKeys::Precision;

/// Returns the type of weights, of batches, and of the network's outputs.
inline at::ScalarType floats_of(Precision precision) {
  return precision == Precision::fp64 ? at::kDouble : at::kFloat;
}

/// Returns true if passes use another precision than the weights.
inline bool is_mixed(Precision precision) {
  return precision == Precision::bf16_mixed || precision == Precision::fp16_mixed;
}

/// Mixed precision for the length of a scope: LibTorch's autocast on the run's device.
class AutocastScope {
 public:
  AutocastScope(at::DeviceType device, Precision precision) : device_(device), on_(is_mixed(precision)) {
    if (!on_) return;
    at::autocast::set_autocast_dtype(device_, precision == Precision::bf16_mixed ? at::kBFloat16 : at::kHalf);
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    if (!on_) return;
    // Casts of weights are cached while in scope; the weights change after it.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  at::DeviceType device_;
  bool on_;
};

}  // namespace trainyard::train
