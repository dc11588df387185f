// Operators element by element, as many behind each other as give one value that others read, in one look at their
// inputs, forward and backward.
#include <ATen/Parallel.h>

#include <algorithm>

#include "chain_collector.hpp"
#include "compiler.hpp"

namespace compiled {
namespace {

using trainyard::ValueId;
using trainyard::kernels::Chain;

/// A program with what it works on.
class Run {
 public:
  Run() = default;
  /// `memories` in the order of the operands.
  Run(Program program, std::vector<dnnl::memory> memories)
      : program_(std::move(program)), memories_(std::move(memories)) {
    operands_.resize(memories_.size() + program_.rooms);
  }
  void operator()(const std::vector<Address>& constants) {
    for (const auto& [step, constant] : program_.constants)
      program_.steps[step].first = *static_cast<const float*>(constants[constant].data());
    for (std::size_t i = 0; i < memories_.size(); ++i) operands_[i] = floats(memories_[i]);
    const Chain chain{program_.steps.data(), std::ssize(program_.steps), operands_.data(),
                      std::ssize(operands_)};
    static const trainyard::kernels::ChainKernel run = trainyard::kernels::chain_kernel();
    const std::int64_t count = elements(memories_.front());
    constexpr std::int64_t grain = 1 << 14;
    if (count <= grain) return run(chain, 0, count);
    at::parallel_for(0, count, grain, [&](std::int64_t begin, std::int64_t end) { run(chain, begin, end); });
  }

 private:
  Program program_;
  std::vector<dnnl::memory> memories_;
  std::vector<float*> operands_;
};

class ChainOfNodes final : public Instruction {
 public:
  ChainOfNodes(Compiler& compiler, Formula formula, std::vector<ValueNumber> inputs,
               const std::vector<ValueNumber>& constants, ValueNumber y)
      : formula_(std::move(formula)), inputs_(std::move(inputs)), y_(y) {
    std::vector<dnnl::memory> memories;
    for (const ValueNumber each : inputs_) memories.push_back(compiler.memory(each));
    memories.push_back(compiler.memory(y));
    for (const ValueNumber each : constants) constants_.push_back(compiler.place(each));
    forward_ = {forward_program(formula_), std::move(memories)};
  }
  void forward(const Pass&) override { forward_(constants_); }
  void plan_backward(Compiler& compiler) override {
    std::vector<dnnl::memory> memories;
    for (const ValueNumber each : inputs_) memories.push_back(compiler.memory(each));
    memories.push_back(*compiler.gradient(y_));
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (!formula_[i].wants_gradient) continue;
      into_.push_back(compiler.contribute(inputs_[i]));
      memories.push_back(into_.back().memory);
    }
    backward_ = {backward_program(formula_), std::move(memories)};
  }
  void backward(const Pass&) override {
    backward_(constants_);
    for (const Contribution& each : into_) each.finish();
  }

 private:
  Formula formula_;
  std::vector<ValueNumber> inputs_;
  ValueNumber y_;
  std::vector<Address> constants_;
  Run forward_, backward_;
  std::vector<Contribution> into_;
};

/// A sum, perhaps with a ReLU, has an instruction that copies no gradient.
bool is_sum(const Compiler& compiler, const std::vector<std::size_t>& nodes) {
  return nodes.size() <= 2 && compiler.node(nodes[0]).op == "Add" &&
         (nodes.size() == 1 || compiler.node(nodes[1]).op == "Relu");
}

}  // namespace

bool chain_rule(Compiler& compiler) {
  if (compiler.node().outputs.size() != 1) return false;
  Collected found = collect_chain(compiler, compiler.node_number());
  if (found.nodes.empty() || is_sum(compiler, found.nodes)) return false;
  const Dims dims = compiler.dims_of(compiler.node().outputs[0]);
  std::vector<ValueNumber> inputs, constants;
  for (const ValueId each : found.inputs) inputs.push_back(*compiler.known(each));
  for (const ValueId each : found.constants) constants.push_back(*compiler.known(each));
  const bool is_blocked = std::any_of(inputs.begin(), inputs.end(),
                                      [&](ValueNumber each) { return compiler.value(each).is_blocked; });
  // What fills blocks up is zero, and would not stay so.
  if (is_blocked && whole_blocks(dims[1]) != dims[1]) return false;
  if (is_blocked)
    for (ValueNumber& each : inputs) each = compiler.in_blocks(each);
  const Layout layout = compiler.value(inputs.front()).view.layout;
  bool wants_gradient = false;
  for (const ValueNumber each : inputs) {
    if (compiler.value(each).view.layout != layout) return false;
    wants_gradient |= compiler.wants_gradient(each);
  }
  for (const std::size_t n : found.nodes) compiler.take(n);
  const ValueNumber y = compiler.make(dims, layout, wants_gradient, is_blocked);
  compiler.emit<ChainOfNodes>({y}, std::move(found.formula), std::move(inputs), constants, y);
  compiler.give(compiler.node(found.nodes.back()).outputs[0], y);
  return true;
}

}  // namespace compiled
