// The products of a convolution by oneDNN. Channels that do not fill their last block are filled up with zeros, as
// oneDNN 3.2 has no fast weight gradients of partial blocks.
#include <cstring>
#include <string_view>

#include "convolution.hpp"
#include "filled.hpp"

namespace compiled {
namespace {

using dnnl::algorithm;
using dnnl::prop_kind;
using Forward = dnnl::convolution_forward;
using OfData = dnnl::convolution_backward_data;
using OfWeights = dnnl::convolution_backward_weights;
using Arguments = std::vector<std::pair<int, dnnl::memory>>;

/// The descriptions of the three primitives.
struct Primitives {
  const ConvolutionLayer& layer;
  bool has_bias;
  Dims whole = {layer.whole_outputs(), layer.channels, layer.weight[2], layer.weight[3]};  ///< of the weight
  Layout weight = {whole, layer.x.get_data_type(), dnnl::memory::format_tag::any};
  Layout weight_gradient = {whole, f32, dnnl::memory::format_tag::any};
  Layout bias = has_bias ? row(layer.whole_outputs()) : Layout();

  Forward::primitive_desc forward(bool relu) const {
    dnnl::primitive_attr attributes;
    if (relu) {
      dnnl::post_ops then;
      then.append_eltwise(algorithm::eltwise_relu, 0.0f, 0.0f);
      attributes.set_post_ops(then);
    }
    const Window& w = layer.window;
    return {engine(),
            prop_kind::forward_training,
            algorithm::convolution_direct,
            layer.x,
            weight,
            bias,
            layer.y,
            w.strides,
            w.dilations,
            w.begin,
            w.end,
            attributes,
            true};
  }
  OfData::primitive_desc data(const Forward::primitive_desc& hint) const {
    const Window& w = layer.window;
    return {engine(),    algorithm::convolution_direct,
            layer.x,     weight,
            layer.y,     w.strides,
            w.dilations, w.begin,
            w.end,       hint,
            {},          true};
  }
  OfWeights::primitive_desc weights(const Forward::primitive_desc& hint) const {
    const Window& w = layer.window;
    OfWeights::primitive_desc made(engine(), algorithm::convolution_direct, layer.x, weight_gradient, bias,
                                   layer.y, w.strides, w.dilations, w.begin, w.end, hint, {}, true);
    // Of few channels oneDNN's second kernel for matrix units takes four fifths of the time of its first.
    constexpr std::int64_t few = 16;
    OfWeights::primitive_desc next = made;
    if (layer.x.get_data_type() == bf16 && layer.channels <= few && layer.whole_outputs() <= few && next &&
        next.next_impl() && std::string_view(next.impl_info_str()) == "jit:avx512_core_amx")
      return next;
    return made;
  }
};

/// From the parameter to channels in whole blocks, or back. Rows of the last two dimensions of each pair of channels.
void copy_filters(float* whole, const Dims& whole_dims, float* part, const Dims& dims, bool to_whole) {
  const std::int64_t inner = dims[2] * dims[3];
  for (std::int64_t o = 0; o < dims[0]; ++o) {
    float* const a = whole + o * whole_dims[1] * inner;
    float* const b = part + o * dims[1] * inner;
    to_whole ? copy(a, b, dims[1] * inner) : copy(b, a, dims[1] * inner);
  }
}

/// The weight in the layout that a primitive wants.
class Packed {
 public:
  Packed(Compiler& compiler, ValueNumber weight, const Primitives& primitives, const Layout& layout)
      : dims_(primitives.layer.weight),
        whole_(primitives.whole),
        plain_(compiler.memory(weight)),
        packed_(compiler.scratch(layout)) {
    if (dims_ != whole_) padded_ = compiler.scratch(plain(whole_));
    move_ = reorder(dims_ == whole_ ? plain_ : padded_, packed_);
  }
  const dnnl::memory& memory() const { return packed_; }
  void pack() const {
    if (dims_ != whole_) {
      std::memset(padded_.get_data_handle(), 0, padded_.get_desc().get_size());
      copy_filters(floats(padded_), whole_, floats(plain_), dims_, true);
    }
    move_.run();
  }

 private:
  Dims dims_, whole_;
  dnnl::memory plain_, padded_, packed_;
  Call move_;
};

class DirectForward final : public ConvolutionPart {
 public:
  DirectForward(Compiler& compiler, const ConvolutionValues& values, const Primitives& primitives,
                const Forward::primitive_desc& made)
      : weight_(compiler, values.weight, primitives, made.weights_desc()) {
    Arguments arguments = {{DNNL_ARG_SRC, compiler.memory(values.x)},
                           {DNNL_ARG_WEIGHTS, weight_.memory()},
                           {DNNL_ARG_DST, compiler.memory(values.y)}};
    if (values.bias) {
      bias_ = FilledRow(compiler, *values.bias, primitives.layer.whole_outputs());
      arguments.emplace_back(DNNL_ARG_BIAS, bias_->memory());
    }
    call_ = {Forward(made), arguments};
  }
  void run() override {
    weight_.pack();
    if (bias_) bias_->fill();
    call_.run();
  }

 private:
  Packed weight_;
  std::optional<FilledRow> bias_;
  Call call_;
};

class DirectData final : public ConvolutionPart {
 public:
  DirectData(Compiler& compiler, const ConvolutionValues& values, const Primitives& primitives,
             const OfData::primitive_desc& made, const dnnl::memory& given)
      : weight_(compiler, values.weight, primitives, made.weights_desc()),
        into_(compiler.contribute(values.x)) {
    call_ = {OfData(made),
             {{DNNL_ARG_DIFF_DST, given},
              {DNNL_ARG_WEIGHTS, weight_.memory()},
              {DNNL_ARG_DIFF_SRC, into_.memory}}};
  }
  void run() override {
    weight_.pack();
    call_.run();
    into_.finish();
  }

 private:
  Packed weight_;
  Contribution into_;
  Call call_;
};

class DirectWeights final : public ConvolutionPart {
 public:
  DirectWeights(Compiler& compiler, const ConvolutionValues& values, const Primitives& primitives,
                const OfWeights::primitive_desc& made, const dnnl::memory& given)
      : dims_(primitives.layer.weight),
        whole_(primitives.whole),
        into_(compiler.contribute(values.weight)),
        packed_(compiler.scratch(made.diff_weights_desc())) {
    if (dims_ != whole_) padded_ = compiler.scratch(plain(whole_));
    move_ = reorder(packed_, dims_ == whole_ ? into_.memory : padded_);
    Arguments arguments = {{DNNL_ARG_SRC, compiler.memory(values.x)},
                           {DNNL_ARG_DIFF_DST, given},
                           {DNNL_ARG_DIFF_WEIGHTS, packed_}};
    if (values.bias) {
      bias_ = FilledGradient(compiler, *values.bias, primitives.layer.whole_outputs());
      arguments.emplace_back(DNNL_ARG_DIFF_BIAS, bias_->memory());
    }
    call_ = {OfWeights(made), arguments};
  }
  void run() override {
    call_.run();
    move_.run();
    if (dims_ != whole_) copy_filters(floats(padded_), whole_, floats(into_.memory), dims_, false);
    into_.finish();
    if (bias_) bias_->give();
  }

 private:
  Dims dims_, whole_;
  Contribution into_;
  dnnl::memory packed_, padded_;
  Call move_, call_;
  std::optional<FilledGradient> bias_;
};

bool is_fast(std::string_view implementation) {
  return !implementation.starts_with("ref") && !implementation.starts_with("gemm");
}

}  // namespace

bool has_direct(const ConvolutionLayer& layer, bool needs_x) {
  const Primitives primitives{layer, true};
  const auto made = primitives.forward(false);
  if (!made || !is_fast(made.impl_info_str())) return false;
  const auto weights = primitives.weights(made);
  if (!weights || !is_fast(weights.impl_info_str())) return false;
  if (!needs_x) return true;
  const auto data = primitives.data(made);
  return data && is_fast(data.impl_info_str());
}

ConvolutionPartPtr direct_forward(Compiler& compiler, const ConvolutionLayer& layer,
                                  const ConvolutionValues& values) {
  const Primitives primitives{layer, values.bias.has_value()};
  return std::make_unique<DirectForward>(compiler, values, primitives, primitives.forward(layer.relu));
}

ConvolutionPartPtr direct_data(Compiler& compiler, const ConvolutionLayer& layer,
                               const ConvolutionValues& values, const dnnl::memory& given) {
  const Primitives primitives{layer, values.bias.has_value()};
  return std::make_unique<DirectData>(compiler, values, primitives,
                                      primitives.data(primitives.forward(layer.relu)), given);
}

ConvolutionPartPtr direct_weights(Compiler& compiler, const ConvolutionLayer& layer,
                                  const ConvolutionValues& values, const dnnl::memory& given) {
  const Primitives primitives{layer, values.bias.has_value()};
  return std::make_unique<DirectWeights>(compiler, values, primitives,
                                         primitives.weights(primitives.forward(layer.relu)), given);
}

}  // namespace compiled
