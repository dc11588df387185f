// Nodes that give the same values in another shape, or as they are.
#include "compiler.hpp"

namespace compiled {
namespace {

class Reshape final : public Instruction {
 public:
  Reshape(Compiler&, ValueNumber x, ValueNumber y) : x_(x), y_(y) {}
  void forward(const Pass&) override {}
  void plan_backward(Compiler& compiler) override { into_ = compiler.pass_on(x_, y_); }
  void backward(const Pass&) override { into_.finish(); }

 private:
  ValueNumber x_, y_;
  Contribution into_;
};

}  // namespace

bool view_rule(Compiler& compiler) {
  const trainyard::Node& node = compiler.node();
  if (node.op == "Identity" || (node.op == "Dropout" && !compiler.is_dropped(compiler.node_number()))) {
    if (node.outputs.size() != 1) return false;
    compiler.give(node.outputs[0], compiler.input(0));
    return true;
  }
  if (node.op != "Flatten" && node.op != "Reshape" && node.op != "Squeeze" && node.op != "Unsqueeze")
    return false;
  ValueNumber x = compiler.input(0);
  if (!compiler.is_real(x) || compiler.is_constant(0)) return false;
  if (compiler.value(x).is_blocked) x = compiler.in_plain(x);
  compiler.give(node.outputs[0], reshaped(compiler, x, compiler.dims_of(node.outputs[0])));
  return true;
}

ValueNumber reshaped(Compiler& compiler, ValueNumber x, const Dims& dims) {
  const ValueNumber y = compiler.alias(x, dims);
  compiler.emit<Reshape>({y}, x, y);
  return y;
}

}  // namespace compiled
