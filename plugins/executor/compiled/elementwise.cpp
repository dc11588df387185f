// What chains are not for: activations of channels that fill no blocks, GELU with the error function, and sums of two
// values with a ReLU behind them; in the layout that the values have.
#include <cstring>
#include <map>
#include <string_view>

#include "compiler.hpp"
#include "loops.hpp"

namespace compiled {
namespace {

using dnnl::algorithm;

class Activation final : public Instruction {
 public:
  struct Function {
    algorithm how;
    float alpha = 0.0f, beta = 0.0f;
  };
  Activation(Compiler& compiler, const Function& function, ValueNumber x, ValueNumber y)
      : function_(function), x_(x), y_(y), layout_(compiler.value(x).view.layout) {
    hint_ = {engine(),     dnnl::prop_kind::forward_training, function.how, layout_, layout_, function.alpha,
             function.beta};
    forward_ = {dnnl::eltwise_forward(hint_),
                {{DNNL_ARG_SRC, compiler.memory(x)}, {DNNL_ARG_DST, compiler.memory(y)}}};
  }
  void forward(const Pass&) override { forward_.run(); }
  void plan_backward(Compiler& compiler) override {
    const dnnl::eltwise_backward::primitive_desc made(engine(), function_.how, layout_, layout_, layout_,
                                                      function_.alpha, function_.beta, hint_);
    const dnnl::memory given = *compiler.gradient(y_);
    into_ = compiler.contribute(x_);
    backward_ = {
        dnnl::eltwise_backward(made),
        {{DNNL_ARG_SRC, compiler.memory(x_)}, {DNNL_ARG_DIFF_DST, given}, {DNNL_ARG_DIFF_SRC, into_.memory}}};
  }
  void backward(const Pass&) override {
    backward_.run();
    into_.finish();
  }

 private:
  Function function_;
  ValueNumber x_, y_;
  Layout layout_;
  dnnl::eltwise_forward::primitive_desc hint_;
  Call forward_, backward_;
  Contribution into_;
};

class Sum final : public Instruction {
 public:
  Sum(Compiler& compiler, ValueNumber a, ValueNumber b, ValueNumber y, bool relu)
      : a_(a), b_(b), y_(y), relu_(relu) {
    from_a_ = compiler.memory(a);
    from_b_ = compiler.memory(b);
    to_ = compiler.memory(y);
    count_ = elements(to_);
  }
  void forward(const Pass&) override {
    typed([&](auto* to, auto* a, auto* b) { relu_ ? add_relu(to, a, b, count_) : add(to, a, b, count_); },
          to_, from_a_, from_b_);
  }
  void plan_backward(Compiler& compiler) override {
    given_ = *compiler.gradient(y_);
    if (relu_) output_ = compiler.memory(y_);
    own_ = compiler.over_gradient(y_);
    const bool to_a = compiler.wants_gradient(a_), to_b = compiler.wants_gradient(b_);
    if (to_a && to_b && !compiler.has_gradient(a_) && !compiler.has_gradient(b_) && a_ != b_ &&
        !compiler.share_gradient(a_, b_))
      into_b_ = compiler.copy_on(b_, y_);
    else if (to_b)
      into_b_ = compiler.pass_on(b_, y_);
    if (to_a) into_a_ = compiler.pass_on(a_, y_);
  }
  void backward(const Pass&) override {
    if (relu_)
      through_relu(own_, given_, output_);
    else if (floats(own_) != floats(given_))
      std::memcpy(own_.get_data_handle(), given_.get_data_handle(), own_.get_desc().get_size());
    into_b_.finish();
    into_a_.finish();
  }

 private:
  ValueNumber a_, b_, y_;  ///< b is made behind a
  bool relu_;
  std::int64_t count_ = 0;
  dnnl::memory from_a_, from_b_, to_, given_, output_, own_;
  Contribution into_a_, into_b_;
};

std::optional<Activation::Function> activation_of(const trainyard::Node& node) {
  if (node.op == "Gelu")
    return Activation::Function{node.text("approximate", "none") == "tanh" ? algorithm::eltwise_gelu_tanh
                                                                           : algorithm::eltwise_gelu_erf};
  if (node.op == "Relu") return Activation::Function{algorithm::eltwise_relu};
  if (node.op == "Sigmoid") return Activation::Function{algorithm::eltwise_logistic};
  if (node.op == "Tanh") return Activation::Function{algorithm::eltwise_tanh};
  if (node.op == "LeakyRelu")
    return Activation::Function{algorithm::eltwise_relu, static_cast<float>(node.number("alpha", 0.01))};
  if (node.op == "HardSigmoid")
    return Activation::Function{algorithm::eltwise_hardsigmoid, static_cast<float>(node.number("alpha", 0.2)),
                                static_cast<float>(node.number("beta", 0.5))};
  if (node.op == "Elu")
    return Activation::Function{algorithm::eltwise_elu, static_cast<float>(node.number("alpha", 1.0))};
  return std::nullopt;
}

bool activation(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  const std::optional<Activation::Function> function = activation_of(node);
  const ValueNumber x = compiler.input(0);
  const Value in = compiler.value(x);
  if (!function || !compiler.is_real(x)) return false;
  const ValueNumber y = compiler.make(in.dims, in.view.layout, in.wants_gradient, in.is_blocked);
  compiler.emit<Activation>({y}, *function, x, y);
  compiler.give(node.outputs[0], y);
  return true;
}

bool sum(Compiler& compiler) {
  ValueNumber a = compiler.input(0), b = compiler.input(1);
  if (compiler.value(a).dims != compiler.value(b).dims || !compiler.is_real(a) || !compiler.is_real(b) ||
      compiler.value(a).dims.empty())
    return false;
  if (compiler.value(a).is_blocked || compiler.value(b).is_blocked) {
    a = compiler.in_blocks(a);
    b = compiler.in_blocks(b);
  } else {
    a = compiler.in_plain(a);
    b = compiler.in_plain(b);
  }
  if (compiler.value(a).maker > compiler.value(b).maker) std::swap(a, b);
  trainyard::ValueId output = compiler.node().outputs[0];
  const bool relu = compiler.absorb("Relu", output);
  const Value in = compiler.value(a);
  const ValueNumber y = compiler.make(
      in.dims, in.view.layout, compiler.wants_gradient(a) || compiler.wants_gradient(b), in.is_blocked);
  compiler.emit<Sum>({y}, a, b, y, relu);
  compiler.give(output, y);
  return true;
}

}  // namespace

bool elementwise_rule(Compiler& compiler) {
  return compiler.node().op == "Add" ? sum(compiler) : activation(compiler);
}

}  // namespace compiled
