// A sum that stays on the device until somebody asks for it.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainyard {

class MetricSum {
 public:
  void add(double value) { host_ += value; }
  /// A tensor of one element, perhaps on a GPU; does not wait for it.
  void add(const at::Tensor& value) {
    if (device_.defined())
      device_.add_(value);
    else
      device_ = value.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  }
  /// Waits for the device.
  double value() const { return host_ + (device_.defined() ? device_.item<double>() : 0.0); }
  void reset() { *this = {}; }

 private:
  double host_ = 0.0;
  at::Tensor device_;
};

}  // namespace trainyard
