// The products of a convolution of 3 x 3 or 5 x 5 with fewer products of numbers (kernels/cpu/winograd.hpp). With few channels, or a tile
// that reaches far over the edge of the image, that is not faster.
#include "kernels/cpu/winograd.hpp"
#include "convolution.hpp"
#include "filled.hpp"
#include "images.hpp"

namespace compiled {
namespace {

using trainyard::kernels::WinogradKernels;
using trainyard::kernels::WinogradShape;

const WinogradKernels& kernels() {
  static const WinogradKernels& found = trainyard::kernels::winograd_kernels();
  return found;
}

std::optional<WinogradShape> shape_of(const ConvolutionLayer& layer) {
  const Window& window = layer.window;
  const std::int64_t kernel = window.kernel[0];
  if (layer.is_picture || (kernel != 3 && kernel != 5) || window.kernel[1] != kernel || window.dilated() ||
      window.strides != Dims{1, 1} || std::max(window.begin[0], window.begin[1]) >= kernel ||
      kernels().block != channel_block())
    return std::nullopt;
  const Dims x = layer.x.get_dims(), y = layer.y.get_dims();
  return WinogradShape{.in = layer.weight[1],
                       .out = layer.weight[0],
                       .in_rows = x[2],
                       .in_columns = x[3],
                       .out_rows = y[2],
                       .out_columns = y[3],
                       .rows_before = window.begin[0],
                       .columns_before = window.begin[1],
                       .kernel = static_cast<int>(kernel)};
}

/// By operations on a vector of channels: those of the transforms were measured, as many as of so many products.
bool pays(const WinogradShape& shape, double direct_pixels) {
  constexpr double of_transform = 330, advantage = 0.8;
  const auto blocks = [](std::int64_t channels) {
    const std::int64_t count = whole_blocks(channels) / channel_block();
    return static_cast<double>(count);
  };
  const double size = shape.kernel, outputs = 7 - shape.kernel;
  const double tiles = std::ceil(static_cast<double>(shape.out_rows) / outputs) *
                       std::ceil(static_cast<double>(shape.out_columns) / outputs);
  const double in = blocks(shape.in), out = blocks(shape.out);
  const double direct = direct_pixels * size * size * static_cast<double>(whole_blocks(shape.in)) * out;
  return tiles * (36.0 * static_cast<double>(shape.in) * out + of_transform * (in + out)) <
         advantage * direct;
}

double pixels(const WinogradShape& shape) {
  return static_cast<double>(shape.out_rows * shape.out_columns);
}

/// Forward, and from the gradient of y to that of x, which is a convolution as well.
class WinogradPart final : public ConvolutionPart {
 public:
  struct Run {
    WinogradShape shape;  ///< of what is run
    WinogradShape plain;  ///< of the layer
    bool is_back;
    bool relu;
  };
  WinogradPart(Compiler& compiler, const Run& way, std::int64_t images, ValueNumber weight,
               std::optional<ValueNumber> bias, dnnl::memory from, dnnl::memory to)
      : way_(way),
        images_(images),
        weight_(compiler.memory(weight)),
        from_(std::move(from)),
        to_(std::move(to)),
        filters_(compiler.scratch(floats_of(kernels().filter_floats(way.shape)))),
        scratch_floats_(kernels().scratch_floats(way.shape)),
        scratch_(compiler.scratch(floats_of(scratch_floats_ * at::get_num_threads()))) {
    if (bias) bias_ = FilledRow(compiler, *bias, whole_blocks(way.shape.out));
  }
  void run() override {
    (way_.is_back ? kernels().transform_back : kernels().transform)(way_.plain, floats(weight_),
                                                                    floats(filters_));
    if (bias_) bias_->fill();
    over_images(images_, scratch_, scratch_floats_,
                [&](std::int64_t begin, std::int64_t end, float* scratch) {
                  kernels().convolve({.shape = way_.shape,
                                      .x = floats(from_),
                                      .filters = floats(filters_),
                                      .bias = bias_ ? floats(bias_->memory()) : nullptr,
                                      .relu = way_.relu,
                                      .y = floats(to_),
                                      .scratch = scratch},
                                     begin, end);
                });
  }

 private:
  Run way_;
  std::int64_t images_;
  dnnl::memory weight_, from_, to_, filters_;
  std::int64_t scratch_floats_;
  dnnl::memory scratch_;
  std::optional<FilledRow> bias_;
};

class WinogradData final : public ConvolutionPart {
 public:
  WinogradData(Compiler& compiler, const WinogradShape& shape, std::int64_t images, ValueNumber weight,
               const dnnl::memory& given, const Contribution& into)
      : into_(into),
        part_(compiler, {shape.back(), shape, true, false}, images, weight, {}, given, into.memory) {}
  void run() override {
    part_.run();
    into_.finish();
  }

 private:
  Contribution into_;
  WinogradPart part_;
};

class WinogradWeights final : public ConvolutionPart {
 public:
  WinogradWeights(Compiler& compiler, const WinogradShape& shape, std::int64_t images,
                  const ConvolutionValues& values, dnnl::memory given)
      : shape_(shape),
        images_(images),
        x_(compiler.memory(values.x)),
        given_(std::move(given)),
        sum_(compiler, images, kernels().filter_floats(shape), kernels().scratch_floats(shape)),
        into_(compiler.contribute(values.weight)) {
    if (values.bias) bias_ = FilledGradient(compiler, *values.bias, whole_blocks(shape.out));
  }
  void run() override {
    const float* const sums =
        sum_.run([&](std::int64_t begin, std::int64_t end, float* gradient, float* scratch) {
          kernels().weights({.shape = shape_,
                             .x = floats(x_),
                             .given = floats(given_),
                             .gradient = gradient,
                             .scratch = scratch},
                            begin, end);
        });
    kernels().weights_end(shape_, sums, floats(into_.memory));
    into_.finish();
    if (!bias_) return;
    sum_pixels(floats(bias_->memory()), floats(given_), images_, whole_blocks(shape_.out),
               shape_.out_rows * shape_.out_columns, channel_block());
    bias_->give();
  }

 private:
  WinogradShape shape_;
  std::int64_t images_;
  dnnl::memory x_, given_;
  SumOverImages sum_;
  Contribution into_;
  std::optional<FilledGradient> bias_;
};

}  // namespace

std::optional<bool> counts_for_winograd(const ConvolutionLayer& layer, Direction direction) {
  const std::optional<WinogradShape> shape = shape_of(layer);
  if (!shape) return std::nullopt;
  return pays(direction == Direction::data ? shape->back() : *shape, pixels(*shape));
}

ConvolutionPartPtr winograd_forward(Compiler& compiler, const ConvolutionLayer& layer,
                                    const ConvolutionValues& values) {
  const WinogradShape shape = *shape_of(layer);
  return std::make_unique<WinogradPart>(compiler, WinogradPart::Run{shape, shape, false, layer.relu},
                                        layer.x.get_dims()[0], values.weight, values.bias,
                                        compiler.memory(values.x), compiler.memory(values.y));
}

ConvolutionPartPtr winograd_data(Compiler& compiler, const ConvolutionLayer& layer,
                                 const ConvolutionValues& values, const dnnl::memory& given) {
  const WinogradShape shape = *shape_of(layer);
  return std::make_unique<WinogradData>(compiler, shape, layer.x.get_dims()[0], values.weight, given,
                                        compiler.contribute(values.x));
}

ConvolutionPartPtr winograd_weights(Compiler& compiler, const ConvolutionLayer& layer,
                                    const ConvolutionValues& values, const dnnl::memory& given) {
  const WinogradShape shape = *shape_of(layer);
  return std::make_unique<WinogradWeights>(compiler, shape, layer.x.get_dims()[0], values, given);
}

}  // namespace compiled
