// Like bounds.cpp, for any rounding mode.
#include "products.hpp"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/cpu/interval_gemm.hpp"
#include "threads.hpp"

namespace gpupoly {
namespace {

namespace kernels = trainyard::kernels;

/// Row r through a convolution: its pixels times the weights, each product added where its window lies.
std::int64_t through_conv(const Rows& rows, std::size_t r, const Layer& layer, Rows& out) {
  const Window& c = layer.window;
  const Map& parent = out.map;
  const std::int64_t patch = c.height * c.width * parent.channels, channels = rows.map.channels;
  std::vector<double> low, up;
  std::int64_t done = 0;
  rows.stretches(r, [&](std::int64_t offset, std::int64_t element, std::int64_t size) {
    const std::int64_t pixels = size / channels;
    low.assign(static_cast<std::size_t>(pixels * patch), 0.0);
    up.assign(low.size(), 0.0);
    done += kernels::interval_gemm(kernels::fastest_isa(), pixels, channels, patch,
                                   {rows.low.data() + offset, rows.up.data() + offset}, layer.weights.data(),
                                   {low.data(), up.data()});
    for (std::int64_t p = 0; p < pixels; ++p) {
      const std::int64_t at = element / channels + p;
      c.each_tap(parent, at / rows.map.width, at % rows.map.width, [&](std::int64_t from, std::int64_t tap) {
        const std::int64_t pixel = from / parent.channels,
                           to = out.place(r, pixel / parent.width, pixel % parent.width);
        for (std::int64_t i = 0; i < parent.channels; ++i) {
          out.low[static_cast<std::size_t>(to + i)] += low[static_cast<std::size_t>(p * patch + tap + i)];
          out.up[static_cast<std::size_t>(to + i)] += up[static_cast<std::size_t>(p * patch + tap + i)];
        }
      });
    }
  });
  return done;
}

class ProcessorProducts final : public Products {
 public:
  std::int64_t add(const Rows& rows, const Layer& layer, bool upward, Rows& out) override {
    std::atomic<std::int64_t> done = 0;
    const std::size_t count = rows.count();
    if (layer.step == Step::conv) {
      in_threads(upward, count, count * layer.weights.size(),
                 [&](std::size_t r) { done += through_conv(rows, r, layer, out); });
      return done;
    }
    // Forms that go by the weights together, as many as leave every thread some.
    const std::size_t share = count / (2 * static_cast<std::size_t>(omp_get_max_threads()));
    const std::size_t band = std::clamp<std::size_t>(share / 4 * 4, 4, 64);
    const auto in = static_cast<std::size_t>(rows.width()), columns = static_cast<std::size_t>(out.width());
    in_threads(upward, (count + band - 1) / band, rows.low.size() * columns, [&](std::size_t i) {
      const std::size_t r = i * band;
      done += kernels::interval_gemm(
          kernels::fastest_isa(), static_cast<std::int64_t>(std::min(band, count - r)), rows.width(),
          out.width(), {rows.low.data() + r * in, rows.up.data() + r * in}, layer.weights.data(),
          {out.low.data() + r * columns, out.up.data() + r * columns});
    });
    return done;
  }
};

}  // namespace

std::unique_ptr<Products> processor_products() {
  return std::make_unique<ProcessorProducts>();
}

}  // namespace gpupoly
