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
  if (node.op == "Identity" || (node.op == "Dropout" && !compiler.has_dropout())) {
    if (node.outputs.size() != 1) return false;
    compiler.give(node.outputs[0], compiler.input(0));
    return true;
  }
  if (node.op != "Flatten" && node.op != "Reshape" && node.op != "Squeeze" && node.op != "Unsqueeze")
    return false;
  if (compiler.value(compiler.input(0)).dtype != at::kFloat || compiler.is_constant(0)) return false;
  const ValueNumber x = compiler.in_plain(compiler.input(0));
  const ValueNumber y = compiler.alias(x, compiler.dims_of(node.outputs[0]));
  compiler.emit<Reshape>({y}, x, y);
  compiler.give(node.outputs[0], y);
  return true;
}

}  // namespace compiled
