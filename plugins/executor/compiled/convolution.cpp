// Conv over images, with its bias and a ReLU behind it, in blocks of channels.
#include "convolution.hpp"

#include "loops.hpp"

namespace compiled {
namespace {

class Convolution final : public Instruction {
 public:
  Convolution(Compiler& compiler, ConvolutionLayer layer, const ConvolutionValues& values)
      : layer_(std::move(layer)), values_(values) {
    if (compiler.choices().winograd) forward_ = winograd_forward(compiler, layer_, values_);
    if (!forward_) forward_ = direct_forward(compiler, layer_, values_);
  }

  void forward(const Pass&) override { forward_->run(); }

  void plan_backward(Compiler& compiler) override {
    given_ = unmasked_ = *compiler.gradient(values_.y);
    if (layer_.relu) {
      output_ = compiler.memory(values_.y);
      given_ = compiler.over_gradient(values_.y);
    }
    if (compiler.wants_gradient(values_.weight) || (values_.bias && compiler.wants_gradient(*values_.bias))) {
      if (compiler.choices().winograd) weights_ = winograd_weights(compiler, layer_, values_, given_);
      if (!weights_) weights_ = direct_weights(compiler, layer_, values_, given_);
    }
    if (!compiler.wants_gradient(values_.x)) return;
    if (compiler.choices().winograd) data_ = winograd_data(compiler, layer_, values_, given_);
    if (!data_) data_ = direct_data(compiler, layer_, values_, given_);
  }

  void backward(const Pass&) override {
    if (layer_.relu) through_relu(floats(given_), floats(unmasked_), floats(output_), elements(given_));
    if (weights_) weights_->run();
    if (data_) data_->run();
  }

 private:
  ConvolutionLayer layer_;
  ConvolutionValues values_;
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
  if (in.size() != 4 || compiler.value(values.x).dtype != at::kFloat || !compiler.is_constant(1) ||
      (values.bias && !compiler.is_constant(2)))
    return false;
  const std::optional<Window> window = window_of(node, {kernel[2], kernel[3]});
  if (!window) return false;

  trainyard::ValueId output = node.outputs[0];
  const Dims dims = compiler.dims_of(output);
  Dims whole = dims;
  whole[1] = whole_blocks(dims[1]);
  ConvolutionLayer layer{
      .window = *window, .x = plain(in), .y = blocked(whole), .weight = kernel, .channels = in[1]};
  // A picture of one or three colours is read as it is; else channels come in blocks.
  layer.is_picture = (in[1] == 1 || in[1] == 3) && !compiler.value(values.x).is_blocked;
  if (!layer.is_picture) {
    layer.channels = whole_blocks(in[1]);
    layer.x = blocked({in[0], layer.channels, in[2], in[3]});
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
