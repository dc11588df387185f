// Operators element by element, as many behind each other as give one value that others read, in one look at their
// inputs, forward and backward.
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

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
  /// `memories` in the order of the operands: those that are read, then those that are written.
  Run(Program program, std::vector<dnnl::memory> memories, std::size_t read)
      : program_(std::move(program)), memories_(std::move(memories)), read_(read) {
    operands_.resize(memories_.size() + program_.rooms);
    for (std::size_t i = 0; i < memories_.size(); ++i)
      if (memories_[i].get_desc().get_data_type() == bf16) halves_.push_back(i);
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
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      halves_.empty() ? run(chain, begin, end) : run_widened(chain, run, begin, end);
    };
    if (count <= grain) return part(0, count);
    at::parallel_for(0, count, grain, part);
  }

 private:
  /// The kernel knows floats: halves are widened a strip at a time, which stays in the first cache.
  void run_widened(Chain chain, trainyard::kernels::ChainKernel run, std::int64_t begin,
                   std::int64_t end) const {
    constexpr std::int64_t strip = 1024;
    thread_local std::vector<float> room;
    room.resize(halves_.size() * strip);
    std::vector<float*> operands(operands_.size());
    for (std::int64_t at = begin; at < end; at += strip) {
      const std::int64_t count = std::min(strip, end - at);
      for (std::size_t i = 0; i < operands_.size(); ++i)
        operands[i] = operands_[i] == nullptr ? nullptr : operands_[i] + at;
      for (std::size_t k = 0; k < halves_.size(); ++k) {
        const std::size_t i = halves_[k];
        operands[i] = room.data() + static_cast<std::int64_t>(k) * strip;
        if (i < read_) widen(operands[i], half(i) + at, count);
      }
      chain.operands = operands.data();
      run(chain, 0, count);
      for (const std::size_t i : halves_)
        if (i >= read_) narrow(half(i) + at, operands[i], count);
    }
  }
  Half* half(std::size_t i) const { return static_cast<Half*>(memories_[i].get_data_handle()); }

  Program program_;
  std::vector<dnnl::memory> memories_;
  std::size_t read_ = 0;
  std::vector<std::size_t> halves_;  ///< which of the memories
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
    forward_ = {forward_program(formula_), std::move(memories), inputs_.size()};
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
    backward_ = {backward_program(formula_), std::move(memories), inputs_.size() + 1};
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

/// Whether zeros stay zeros, both ways. A constant may be another one in the next pass.
bool keeps_zeros(const Formula& formula, std::size_t inputs) {
  const auto gives_zeros = [](Program program, std::size_t known) {
    if (!program.constants.empty()) return false;
    std::array<float, trainyard::kernels::chain_operands> elements{};
    std::array<float*, trainyard::kernels::chain_operands> operands{};
    for (std::size_t i = 0; i < operands.size(); ++i) operands[i] = &elements[i];
    const Chain chain{program.steps.data(), std::ssize(program.steps), operands.data(), std::ssize(operands)};
    trainyard::kernels::chain_kernel()(chain, 0, 1);
    return std::all_of(elements.begin(), elements.begin() + known, [](float each) { return each == 0.0f; });
  };
  const auto wanted = std::count_if(formula.begin(), formula.begin() + static_cast<std::ptrdiff_t>(inputs),
                                    [](const Term& each) { return each.wants_gradient; });
  return gives_zeros(forward_program(formula), inputs + 1) &&
         gives_zeros(backward_program(formula), inputs + 1 + static_cast<std::size_t>(wanted));
}

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
  const ValueId last = compiler.node(found.nodes.back()).outputs[0];
  const Dims dims = compiler.dims_of(compiler.node().outputs[0]);
  std::vector<ValueNumber> inputs, constants;
  for (const ValueId each : found.inputs) inputs.push_back(*compiler.known(each));
  for (const ValueId each : found.constants) constants.push_back(*compiler.known(each));
  const bool is_blocked = std::any_of(inputs.begin(), inputs.end(),
                                      [&](ValueNumber each) { return compiler.value(each).is_blocked; });
  // What fills blocks up is zero, and has to stay so.
  if (is_blocked && !compiler.has_halves() && whole_blocks(dims[1]) != dims[1] &&
      !keeps_zeros(found.formula, inputs.size()))
    return false;
  if (is_blocked)
    for (ValueNumber& each : inputs) each = compiler.in_blocks(each);
  const Layout same = compiler.value(inputs.front()).view.layout;
  bool wants_gradient = false;
  for (const ValueNumber each : inputs) {
    // Halves in the order of the dimensions lie as floats do.
    const bool same_order = !is_blocked && compiler.value(each).dims == compiler.value(inputs.front()).dims;
    if (compiler.value(each).view.layout != same && !same_order) return false;
    wants_gradient |= compiler.wants_gradient(each);
  }
  const Layout layout = is_blocked ? same : plain(dims, compiler.is_read_as_half(last) ? bf16 : f32);
  for (const std::size_t n : found.nodes) compiler.take(n);
  const ValueNumber y = compiler.make(dims, layout, wants_gradient, is_blocked);
  compiler.emit<ChainOfNodes>({y}, std::move(found.formula), std::move(inputs), constants, y);
  compiler.give(last, y);
  return true;
}

}  // namespace compiled
