// Units of an activation layer that are idle.
#pragma once

#include <ATen/core/Tensor.h>

namespace rules {

using namespace trainyard;

/// Share in percent of the units that are active in less than `threshold_inactivity` percent of the samples.
/// `active`: booleans, samples first. A unit is a channel of images (N, C, H, W), where each place of an
/// image is a sample of its own, and else an element of the last dimension.
inline double idle_units_percent(const at::Tensor& active, double threshold_inactivity) {
  const std::int64_t axis = active.dim() >= 4 ? 1 : active.dim() - 1;
  const at::Tensor by_unit = active.movedim(axis, 0).reshape({active.size(axis), -1});
  const at::Tensor shares = by_unit.to(at::kDouble).mean(1).mul(100.0);
  return 100.0 * shares.lt(threshold_inactivity).to(at::kDouble).mean().item<double>();
}

}  // namespace rules
