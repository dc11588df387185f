#include "device.hpp"

#include <map>
#include <utility>

#include <trainyard/error.hpp>

#ifdef TRAINYARD_CUDA
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/interval_conv.hpp"
#endif

namespace gpupoly {

using trainyard::ConfigError;
namespace kernels = trainyard::kernels;

kernels::IntervalConv geometry(const Rows& rows, const Layer& layer, const Rows& out) {
  const auto window_of = [](const Rows& r) -> kernels::FormWindow {
    return {r.map.height,      r.map.width,       r.map.channels, r.window.height, r.window.width,
            r.window.stride_y, r.window.stride_x, r.window.pad_y, r.window.pad_x};
  };
  const Window& c = layer.window;
  return {static_cast<std::int64_t>(rows.count()),
          window_of(rows),
          window_of(out),
          c.height,
          c.width,
          c.stride_y,
          c.stride_x,
          c.pad_y,
          c.pad_x};
}

#ifdef TRAINYARD_CUDA
namespace {

class CudaProducts final : public Products {
 public:
  std::int64_t add(const Rows& rows, const Layer& layer, bool upward, Rows& out) override {
    const kernels::IntervalConv conv = geometry(rows, layer, out);
    const auto [weights, fresh] =
        weights_.try_emplace(&layer, layer.weights.data(), static_cast<std::int64_t>(layer.weights.size()));
    convolution_.add(conv, {rows.low.data(), rows.up.data()}, weights->second, rows.pixels.data()->data(),
                     {out.low.data(), out.up.data()}, upward);
    return conv.forms * conv.out.coefficients() *
           (static_cast<std::int64_t>(layer.weights.size()) / rows.map.channels);
  }

 private:
  std::map<const Layer*, kernels::cuda::Weights> weights_;
  kernels::cuda::IntervalConvolution convolution_;
};

}  // namespace
#endif

std::unique_ptr<Products> cuda_products() {
#ifdef TRAINYARD_CUDA
  if (kernels::cuda::available()) return std::make_unique<CudaProducts>();
  throw ConfigError(
      "gpupoly: device is cuda, and there is no CUDA device here that its kernels run on; set device = "
      "\"cpu\"");
#else
  throw ConfigError("gpupoly: device is cuda, and this build has no CUDA kernels; set device = \"cpu\"");
#endif
}

}  // namespace gpupoly
