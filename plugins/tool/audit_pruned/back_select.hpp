// BackSelect (Carter et al., "What made you do this? Understanding black-box decisions with sufficient input subsets",
// AISTATS 2019): pixels are taken out of an image one after the other, each time the one without which the network is surest.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace audit {

/// Returns how sure a network is, a number for each of several images [count, channels, pixels], on the CPU.
using Confidence = std::function<std::vector<double>(const at::Tensor& images)>;

struct Selection {
  std::vector<std::int64_t> order;  ///< of all pixels, as they were taken out: the last one says the most
  std::int64_t evaluations = 0;     ///< images that were looked at: pixels (pixels + 1) / 2
};

/// Takes all pixels out of an image [channels, pixels], each in all of its channels, by setting it to 0. Of pixels without
/// which the network is equally sure the first one goes. `at_once` images at most are looked at in one call. `stop` is
/// asked before each; what was found until then is returned.
Selection back_select(
    const at::Tensor& image, const Confidence& confidence, std::int64_t at_once,
    const std::function<bool()>& stop = [] { return false; });

/// Returns the image with 0 in all pixels but the last `kept` of an order.
at::Tensor with_last(const at::Tensor& image, const std::vector<std::int64_t>& order, std::int64_t kept);

}  // namespace audit
