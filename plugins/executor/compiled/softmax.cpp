// Softmax and its logarithm. Over another dimension than the last, that one is brought there and back.
#include <numeric>

#include "compiler.hpp"

namespace compiled {
namespace {

class Softmax final : public Instruction {
 public:
  Softmax(Compiler& compiler, dnnl::algorithm how, ValueNumber x, ValueNumber y) : how_(how), x_(x), y_(y) {
    const std::int64_t width = compiler.value(x).dims.back();
    layout_ = plain({elements(compiler.memory(x)) / width, width});
    hint_ = {engine(), dnnl::prop_kind::forward_training, how, layout_, layout_, 1};
    forward_ = {dnnl::softmax_forward(hint_),
                {{DNNL_ARG_SRC, compiler.memory(x, layout_)}, {DNNL_ARG_DST, compiler.memory(y, layout_)}}};
  }
  void forward(const Pass&) override { forward_.run(); }
  void plan_backward(Compiler& compiler) override {
    const dnnl::memory given = *compiler.gradient(y_);
    into_ = compiler.contribute(x_);
    backward_ = {dnnl::softmax_backward({engine(), how_, layout_, layout_, layout_, 1, hint_}),
                 {{DNNL_ARG_DST, compiler.memory(y_, layout_)},
                  {DNNL_ARG_DIFF_DST, given},
                  {DNNL_ARG_DIFF_SRC, into_.memory}}};
  }
  void backward(const Pass&) override {
    backward_.run();
    into_.finish();
  }

 private:
  dnnl::algorithm how_;
  ValueNumber x_, y_;
  Layout layout_;
  dnnl::softmax_forward::primitive_desc hint_;
  Call forward_, backward_;
  Contribution into_;
};

}  // namespace

bool softmax_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  const bool is_log = node.op == "LogSoftmax";
  if ((!is_log && node.op != "Softmax") || !compiler.is_real(compiler.input(0))) return false;
  const Dims dims = compiler.value(compiler.input(0)).dims;
  const auto rank = static_cast<std::int64_t>(dims.size());
  const std::int64_t given = node.integer("axis", -1), axis = given < 0 ? given + rank : given;
  if (axis < 0 || axis >= rank) return false;
  for (const std::int64_t size : dims)
    if (size == 0) return false;
  Dims order(dims.size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<std::size_t>(axis)], order.back());
  const bool is_last = axis + 1 == rank;
  ValueNumber x = compiler.in_plain(compiler.input(0));
  if (!is_last) x = turned(compiler, x, order);
  const Dims turned_dims = compiler.value(x).dims;
  const ValueNumber y = compiler.make(turned_dims, plain(turned_dims), compiler.wants_gradient(x));
  compiler.emit<Softmax>({y}, is_log ? dnnl::algorithm::softmax_log : dnnl::algorithm::softmax_accurate, x,
                         y);
  compiler.give(node.outputs[0], is_last ? y : turned(compiler, y, order));
  return true;
}

}  // namespace compiled
