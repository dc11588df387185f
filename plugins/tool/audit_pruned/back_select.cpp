#include "back_select.hpp"

#include <algorithm>
#include <span>

#include <ATen/ops/zeros_like.h>

namespace audit {
namespace {

/// Returns copies of an image, each without one more pixel.
at::Tensor each_without(const at::Tensor& image, std::span<const std::int64_t> pixels) {
  const auto count = static_cast<std::int64_t>(pixels.size());
  at::Tensor copies = image.unsqueeze(0).repeat({count, 1, 1});
  float* values = copies.mutable_data_ptr<float>();
  const std::int64_t channels = image.size(0), size = image.size(1);
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t c = 0; c < channels; ++c)
      values[(i * channels + c) * size + pixels[static_cast<std::size_t>(i)]] = 0.0f;
  return copies;
}

}  // namespace

Selection back_select(const at::Tensor& image, const Confidence& confidence, std::int64_t at_once,
                      const std::function<bool()>& stop) {
  at::Tensor left = image.contiguous().clone();
  std::vector<std::int64_t> alive(static_cast<std::size_t>(image.size(1)));
  for (std::size_t i = 0; i < alive.size(); ++i) alive[i] = static_cast<std::int64_t>(i);
  Selection selection;
  while (!alive.empty() && !stop()) {
    std::vector<double> sure;
    for (std::size_t first = 0; first < alive.size(); first += static_cast<std::size_t>(at_once)) {
      const std::size_t count = std::min(static_cast<std::size_t>(at_once), alive.size() - first);
      const std::vector<double> some = confidence(each_without(left, std::span(alive).subspan(first, count)));
      sure.insert(sure.end(), some.begin(), some.end());
    }
    selection.evaluations += static_cast<std::int64_t>(sure.size());
    const auto chosen = std::ranges::max_element(sure) - sure.begin();  // the first of equal ones
    const std::int64_t pixel = alive[static_cast<std::size_t>(chosen)];
    left.select(1, pixel).zero_();
    alive.erase(alive.begin() + chosen);
    selection.order.push_back(pixel);
  }
  return selection;
}

at::Tensor with_last(const at::Tensor& image, const std::vector<std::int64_t>& order, std::int64_t kept) {
  at::Tensor left = at::zeros_like(image);
  const std::size_t first = order.size() - std::min(order.size(), static_cast<std::size_t>(kept));
  for (std::size_t i = first; i < order.size(); ++i)
    left.select(1, order[i]).copy_(image.select(1, order[i]));
  return left;
}

}  // namespace audit
