// Conv over images, with its bias and a ReLU behind it, in blocks of channels. Channels that do not fill their
// last block are filled up with zeros, which costs nothing in registers of that many floats: oneDNN 3.2 has no
// fast weight gradients of partial blocks.
#include <cstring>
#include <string_view>

#include "compiler.hpp"
#include "loops.hpp"
#include "window.hpp"

namespace compiled {
namespace {

using Tag = dnnl::memory::format_tag;
using dnnl::algorithm;
using dnnl::prop_kind;
using Forward = dnnl::convolution_forward;
using OfData = dnnl::convolution_backward_data;
using OfWeights = dnnl::convolution_backward_weights;

constexpr auto f32 = dnnl::memory::data_type::f32;

/// A parameter in the layout that a primitive wants; its gradient comes back the same way.
class Packed {
 public:
  Packed() = default;
  /// `plain`: the parameter, of `dims`; `whole`: those dims with channels filled up.
  Packed(Compiler& compiler, const dnnl::memory& plain_memory, const Dims& dims, const Dims& whole,
         const Layout& layout)
      : dims_(dims), whole_(whole), plain_(plain_memory), packed_(compiler.scratch(layout)) {
    if (dims != whole) padded_ = compiler.scratch(plain(whole));
    move_ = reorder(dims == whole ? plain_ : padded_, packed_);
  }
  const dnnl::memory& memory() const { return packed_; }
  void pack() const {
    if (dims_ != whole_) {
      std::memset(padded_.get_data_handle(), 0, padded_.get_desc().get_size());
      copy_rows(floats(padded_), whole_, floats(plain_), dims_, true);
    }
    move_.run();
  }

  /// Rows of the last two dimensions of each pair of channels.
  static void copy_rows(float* whole, const Dims& whole_dims, float* part, const Dims& dims, bool to_whole) {
    if (dims.size() == 1) {
      to_whole ? copy(whole, part, dims[0]) : copy(part, whole, dims[0]);
      return;
    }
    const std::int64_t inner = dims[2] * dims[3];
    for (std::int64_t o = 0; o < dims[0]; ++o) {
      float* const a = whole + o * whole_dims[1] * inner;
      float* const b = part + o * dims[1] * inner;
      to_whole ? copy(a, b, dims[1] * inner) : copy(b, a, dims[1] * inner);
    }
  }

 private:
  Dims dims_, whole_;
  dnnl::memory plain_, padded_, packed_;
  Call move_;
};

/// The gradient of a parameter, from the layout of a primitive.
class Unpacked {
 public:
  Unpacked() = default;
  Unpacked(Compiler& compiler, Contribution into, const Dims& dims, const Dims& whole, const Layout& layout)
      : dims_(dims), whole_(whole), into_(std::move(into)), packed_(compiler.scratch(layout)) {
    if (dims != whole) padded_ = compiler.scratch(plain(whole));
    move_ = reorder(packed_, dims == whole ? into_.memory : padded_);
  }
  const dnnl::memory& memory() const { return packed_; }
  void unpack() const {
    move_.run();
    if (dims_ != whole_) Packed::copy_rows(floats(padded_), whole_, floats(into_.memory), dims_, false);
    into_.finish();
  }

 private:
  Dims dims_, whole_;
  Contribution into_;
  dnnl::memory packed_, padded_;
  Call move_;
};

bool is_fast(std::string_view implementation) {
  return !implementation.starts_with("ref") && !implementation.starts_with("gemm");
}

struct Layer {
  Window window;
  Layout x, y, weight, bias;  ///< weight in any layout; bias empty where there is none

  Forward::primitive_desc forward(bool relu) const {
    dnnl::primitive_attr attributes;
    if (relu) {
      dnnl::post_ops then;
      then.append_eltwise(algorithm::eltwise_relu, 0.0f, 0.0f);
      attributes.set_post_ops(then);
    }
    const auto& w = window;
    return {engine(),
            prop_kind::forward_training,
            algorithm::convolution_direct,
            x,
            weight,
            bias,
            y,
            w.strides,
            w.dilations,
            w.begin,
            w.end,
            attributes,
            true};
  }
  OfData::primitive_desc of_data(const Forward::primitive_desc& hint) const {
    const auto& w = window;
    return {engine(),    algorithm::convolution_direct,
            x,           weight,
            y,           w.strides,
            w.dilations, w.begin,
            w.end,       hint,
            {},          true};
  }
  OfWeights::primitive_desc of_weights(const Forward::primitive_desc& hint) const {
    const auto& w = window;
    return {engine(),  algorithm::convolution_direct,
            x,         weight,
            bias,      y,
            w.strides, w.dilations,
            w.begin,   w.end,
            hint,      {},
            true};
  }
  /// Whether all that is needed has a fast implementation.
  bool works(bool needs_x) const {
    const auto made = forward(false);
    if (!made || !is_fast(made.impl_info_str())) return false;
    const auto weights = of_weights(made);
    if (!weights || !is_fast(weights.impl_info_str())) return false;
    if (!needs_x) return true;
    const auto data = of_data(made);
    return data && is_fast(data.impl_info_str());
  }
};

class Convolution final : public Instruction {
 public:
  Convolution(Compiler& compiler, Layer layer, ValueNumber x, ValueNumber weight,
              std::optional<ValueNumber> bias, ValueNumber y, bool relu)
      : layer_(std::move(layer)), x_(x), weight_(weight), bias_(bias), y_(y), relu_(relu) {
    hint_ = layer_.forward(relu);
    const Dims& dims = compiler.value(weight).dims;
    packed_ = Packed(compiler, compiler.memory(weight), dims, layer_.weight.get_dims(), hint_.weights_desc());
    std::vector<std::pair<int, dnnl::memory>> arguments = {{DNNL_ARG_SRC, compiler.memory(x)},
                                                           {DNNL_ARG_WEIGHTS, packed_.memory()},
                                                           {DNNL_ARG_DST, compiler.memory(y)}};
    if (bias) {
      packed_bias_ = Packed(compiler, compiler.memory(*bias), compiler.value(*bias).dims,
                            layer_.bias.get_dims(), layer_.bias);
      arguments.emplace_back(DNNL_ARG_BIAS, packed_bias_.memory());
    }
    forward_ = {Forward(hint_), arguments};
  }

  void forward(const Pass&) override {
    packed_.pack();
    if (bias_) packed_bias_.pack();
    forward_.run();
  }

  void plan_backward(Compiler& compiler) override {
    given_ = unmasked_ = *compiler.gradient(y_);
    if (relu_) {
      output_ = compiler.memory(y_);
      given_ = compiler.over_gradient(y_);
    }
    const Dims& dims = compiler.value(weight_).dims;
    if (compiler.wants_gradient(weight_) || (bias_ && compiler.wants_gradient(*bias_))) {
      const auto made = layer_.of_weights(hint_);
      of_weight_ = Unpacked(compiler, compiler.contribute(weight_), dims, layer_.weight.get_dims(),
                            made.diff_weights_desc());
      std::vector<std::pair<int, dnnl::memory>> arguments = {{DNNL_ARG_SRC, compiler.memory(x_)},
                                                             {DNNL_ARG_DIFF_DST, given_},
                                                             {DNNL_ARG_DIFF_WEIGHTS, of_weight_.memory()}};
      if (bias_) {
        of_bias_ = Unpacked(compiler, compiler.contribute(*bias_), compiler.value(*bias_).dims,
                            layer_.bias.get_dims(), layer_.bias);
        arguments.emplace_back(DNNL_ARG_DIFF_BIAS, of_bias_.memory());
      }
      weights_ = {OfWeights(made), arguments};
    }
    if (!compiler.wants_gradient(x_)) return;
    const auto made = layer_.of_data(hint_);
    backward_packed_ =
        Packed(compiler, compiler.memory(weight_), dims, layer_.weight.get_dims(), made.weights_desc());
    into_x_ = compiler.contribute(x_);
    data_ = {OfData(made),
             {{DNNL_ARG_DIFF_DST, given_},
              {DNNL_ARG_WEIGHTS, backward_packed_.memory()},
              {DNNL_ARG_DIFF_SRC, into_x_.memory}}};
  }

  void backward(const Pass&) override {
    if (relu_) through_relu(floats(given_), floats(unmasked_), floats(output_), elements(given_));
    if (weights_) {
      weights_.run();
      of_weight_.unpack();
      if (bias_) of_bias_.unpack();
    }
    if (!data_) return;
    backward_packed_.pack();
    data_.run();
    into_x_.finish();
  }

 private:
  Layer layer_;
  ValueNumber x_, weight_;
  std::optional<ValueNumber> bias_;
  ValueNumber y_;
  bool relu_;
  Forward::primitive_desc hint_;
  Packed packed_, packed_bias_, backward_packed_;
  Unpacked of_weight_, of_bias_;
  Call forward_, weights_, data_;
  dnnl::memory given_, unmasked_, output_;
  Contribution into_x_;
};

}  // namespace

bool convolution_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  if (node.op != "Conv" || node.integer("group", 1) != 1) return false;
  ValueNumber x = compiler.input(0);
  const ValueNumber weight = compiler.input(1);
  std::optional<ValueNumber> bias;
  if (compiler.has_input(2)) bias = compiler.input(2);
  const Dims in = compiler.value(x).dims, kernel = compiler.value(weight).dims;
  if (in.size() != 4 || compiler.value(x).dtype != at::kFloat || !compiler.is_constant(1) ||
      (bias && !compiler.is_constant(2)))
    return false;
  const std::optional<Window> window = window_of(node, {kernel[2], kernel[3]});
  if (!window) return false;

  trainyard::ValueId output = node.outputs[0];
  const Dims dims = compiler.dims_of(output);
  Dims whole = dims;
  whole[1] = whole_blocks(dims[1]);
  // A picture of one or three colours is read as it is; else channels come in blocks.
  const bool picture = (in[1] == 1 || in[1] == 3) && !compiler.value(x).is_blocked;
  const std::int64_t channels = picture ? in[1] : whole_blocks(in[1]);
  const Layer layer{
      .window = *window,
      .x = picture ? plain(in) : blocked({in[0], channels, in[2], in[3]}),
      .y = blocked(whole),
      .weight = {{whole[1], channels, kernel[2], kernel[3]}, f32, Tag::any},
      .bias = bias ? Layout({whole[1]}, f32, Tag::x) : Layout(),
  };
  if (!layer.works(compiler.wants_gradient(x))) return false;
  if (!picture) x = compiler.in_blocks(x);
  const bool relu = compiler.absorb("Relu", output);
  const bool wants = compiler.wants_gradient(x) || compiler.wants_gradient(weight) ||
                     (bias && compiler.wants_gradient(*bias));
  const ValueNumber y = compiler.make(dims, layer.y, wants, true);
  compiler.emit<Convolution>({y}, layer, x, weight, bias, y, relu);
  compiler.give(output, y);
  return true;
}

}  // namespace compiled
