// The products of a convolution of 3 x 3 or 5 x 5 with fewer products of numbers (kernels/cpu/winograd.hpp), where
// that is faster: with few channels, or a tile that reaches far over the edge of the image, it is not.
#include <ATen/Parallel.h>

#include <cstring>

#include "convolution.hpp"
#include "filled.hpp"
#include "kernels/cpu/winograd.hpp"

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

Layout floats_of(std::int64_t count) {
  return plain({count});
}

/// Runs part(begin, end, scratch) over the images, on the threads that there are.
template <class Part>
void over_images(std::int64_t images, const dnnl::memory& scratch, std::int64_t scratch_floats,
                 const Part& part) {
  at::parallel_for(0, images, 1, [&](std::int64_t begin, std::int64_t end) {
    part(begin, end, floats(scratch) + at::get_thread_num() * scratch_floats);
  });
}

/// Forward, and from the gradient of y to that of x, which is a convolution as well.
class WinogradPart final : public ConvolutionPart {
 public:
  struct Way {
    WinogradShape shape;  ///< of what is run
    WinogradShape plain;  ///< of the layer
    bool is_back;
    bool relu;
  };
  WinogradPart(Compiler& compiler, const Way& way, std::int64_t images, ValueNumber weight,
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
  Way way_;
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

/// Each thread has a sum of its own; they are added in order.
class WinogradWeights final : public ConvolutionPart {
 public:
  WinogradWeights(Compiler& compiler, const WinogradShape& shape, std::int64_t images,
                  const ConvolutionValues& values, dnnl::memory given)
      : shape_(shape),
        images_(images),
        threads_(std::min<std::int64_t>(at::get_num_threads(), images)),
        filter_floats_(kernels().filter_floats(shape)),
        scratch_floats_(kernels().scratch_floats(shape)),
        x_(compiler.memory(values.x)),
        given_(std::move(given)),
        sums_(compiler.scratch(floats_of(filter_floats_ * threads_))),
        scratch_(compiler.scratch(floats_of(scratch_floats_ * threads_))),
        into_(compiler.contribute(values.weight)) {
    if (values.bias) bias_ = FilledGradient(compiler, *values.bias, whole_blocks(shape.out));
  }
  void run() override {
    at::parallel_for(0, threads_, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t) sum(t);
    });
    for (std::int64_t t = 1; t < threads_; ++t)
      add_into(floats(sums_), floats(sums_) + t * filter_floats_, filter_floats_);
    kernels().weights_end(shape_, floats(sums_), floats(into_.memory));
    into_.finish();
    if (!bias_) return;
    sum_pixels(floats(bias_->memory()), floats(given_), images_, whole_blocks(shape_.out),
               shape_.out_rows * shape_.out_columns, channel_block());
    bias_->give();
  }

 private:
  void sum(std::int64_t thread) const {
    float* const gradient = floats(sums_) + thread * filter_floats_;
    std::memset(gradient, 0, static_cast<std::size_t>(filter_floats_) * sizeof(float));
    kernels().weights({.shape = shape_,
                       .x = floats(x_),
                       .given = floats(given_),
                       .gradient = gradient,
                       .scratch = floats(scratch_) + thread * scratch_floats_},
                      thread * images_ / threads_, (thread + 1) * images_ / threads_);
  }

  WinogradShape shape_;
  std::int64_t images_, threads_, filter_floats_, scratch_floats_;
  dnnl::memory x_, given_, sums_, scratch_;
  Contribution into_;
  std::optional<FilledGradient> bias_;
};

}  // namespace

ConvolutionPartPtr winograd_forward(Compiler& compiler, const ConvolutionLayer& layer,
                                    const ConvolutionValues& values) {
  const std::optional<WinogradShape> shape = shape_of(layer);
  if (!shape || !pays(*shape, pixels(*shape))) return nullptr;
  return std::make_unique<WinogradPart>(compiler, WinogradPart::Way{*shape, *shape, false, layer.relu},
                                        layer.x.get_dims()[0], values.weight, values.bias,
                                        compiler.memory(values.x), compiler.memory(values.y));
}

ConvolutionPartPtr winograd_data(Compiler& compiler, const ConvolutionLayer& layer,
                                 const ConvolutionValues& values, const dnnl::memory& given) {
  const std::optional<WinogradShape> shape = shape_of(layer);
  if (!shape || !pays(shape->back(), pixels(*shape))) return nullptr;
  return std::make_unique<WinogradData>(compiler, *shape, layer.x.get_dims()[0], values.weight, given,
                                        compiler.contribute(values.x));
}

ConvolutionPartPtr winograd_weights(Compiler& compiler, const ConvolutionLayer& layer,
                                    const ConvolutionValues& values, const dnnl::memory& given) {
  const std::optional<WinogradShape> shape = shape_of(layer);
  if (!shape || !pays(*shape, pixels(*shape))) return nullptr;
  return std::make_unique<WinogradWeights>(compiler, *shape, layer.x.get_dims()[0], values, given);
}

}  // namespace compiled
