// Conv over images, with its bias and a ReLU behind it, in blocks of channels.
#include "convolution.hpp"

#include "loops.hpp"

namespace compiled {
namespace {

class Convolution final : public Instruction {
 public:
  Convolution(Compiler& compiler, ConvolutionLayer layer, const ConvolutionValues& values)
      : layer_(std::move(layer)), values_(values), node_(compiler.node_number()), times_(compiler.times()) {
    forward_ = (takes_fewer(compiler, Direction::forward) ? winograd_forward : direct_forward)(
        compiler, layer_, values_);
  }

  void forward(const Pass&) override { forward_->run(); }

  void plan_backward(Compiler& compiler) override {
    given_ = unmasked_ = *compiler.gradient(values_.y);
    if (layer_.relu) {
      output_ = compiler.memory(values_.y);
      given_ = compiler.over_gradient(values_.y);
    }
    if (compiler.wants_gradient(values_.weight) || (values_.bias && compiler.wants_gradient(*values_.bias)))
      weights_ = (takes_fewer(compiler, Direction::weights) ? winograd_weights : direct_weights)(
          compiler, layer_, values_, given_);
    if (!compiler.wants_gradient(values_.x)) return;
    data_ = (takes_fewer(compiler, Direction::data) ? winograd_data : direct_data)(compiler, layer_, values_,
                                                                                   given_);
  }

  void backward(const Pass&) override {
    if (layer_.relu) through_relu(given_, unmasked_, output_);
    if (weights_) weights_->run();
    if (data_) data_->run();
  }

 private:
  /// Products; they would lose too much of a half.
  bool takes_fewer(Compiler& compiler, Direction direction) {
    const bool may = compiler.choices().winograd && !compiler.has_halves();
    const std::optional<bool> counted = may ? counts_for_winograd(layer_, direction) : std::nullopt;
    const bool takes = counted && takes_winograd(times_, direction, *counted);
    compiler.note({node_, direction,
                   takes                   ? Way::winograd
                   : compiler.has_halves() ? Way::halves
                                           : Way::direct});
    return takes;
  }

  ConvolutionLayer layer_;
  ConvolutionValues values_;
  std::size_t node_;
  KernelTimes times_;
  ConvolutionPartPtr forward_, weights_, data_;
  dnnl::memory given_, unmasked_, output_;
};

}  // namespace

bool convolution_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  if (node.op != "Conv" || node.integer("group", 1) != 1) return false;
  ConvolutionValues values{compiler.input(0), compiler.input(1), {}, {}};
  if (compiler.has_input(2)) values.bias = compiler.input(2);
  const Dims in = compiler.value(values.x).dims, kernel = compiler.value(values.weight).dims;
  if (in.size() != 4 || !compiler.is_real(values.x) || !compiler.is_weight(1) ||
      (values.bias && !compiler.is_weight(2)))
    return false;
  const std::optional<Window> window = window_of(node, {kernel[2], kernel[3]});
  if (!window) return false;

  trainyard::ValueId output = node.outputs[0];
  const Dims dims = compiler.dims_of(output);
  ConvolutionLayer layer{
      .window = *window, .x = plain(in), .y = compiler.image(dims), .weight = kernel, .channels = in[1]};
  // A picture of one or three colours is read as it is; else channels come in blocks, or as halves by pixels.
  layer.is_picture =
      (in[1] == 1 || in[1] == 3) && !compiler.value(values.x).is_blocked && !compiler.has_halves();
  if (!layer.is_picture) {
    layer.x = compiler.image(in);
    layer.channels = layer.x.get_dims()[1];
  }
  if (!has_direct(layer, compiler.wants_gradient(values.x))) return false;
  if (!layer.is_picture) values.x = compiler.in_blocks(values.x);
  layer.relu = compiler.absorb("Relu", output);
  const bool wants = compiler.wants_gradient(values.x) || compiler.wants_gradient(values.weight) ||
                     (values.bias && compiler.wants_gradient(*values.bias));
  values.y = compiler.make(dims, layer.y, wants, true);
  compiler.emit<Convolution>({values.y}, layer, values);
  compiler.give(output, values.y);
  return true;
}

}  // namespace compiled
