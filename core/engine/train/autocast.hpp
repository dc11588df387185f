// Mixed precision for the length of a scope: LibTorch's autocast on the run's device.
#pragma once

#include <ATen/autocast_mode.h>

#include "core/runfile/run_config.hpp"

namespace trainyard::train {

class AutocastScope {
 public:
  AutocastScope(at::DeviceType device, config::TrainerKeys::Precision precision)
      : device_(device), on_(precision != config::TrainerKeys::Precision::fp32) {
    if (!on_) return;
    at::autocast::set_autocast_dtype(
        device_, precision == config::TrainerKeys::Precision::bf16_mixed ? at::kBFloat16 : at::kHalf);
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
