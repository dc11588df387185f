// Operators element by element, as many behind each other as give one value that others read, in one look at their
// inputs, forward and backward.
#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "chain_program.hpp"
#include "compiler.hpp"

namespace compiled {
namespace {

using trainyard::Node;
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
  void operator()(const std::vector<Place>& constants) {
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
  std::vector<Place> constants_;
  Run forward_, backward_;
  std::vector<Contribution> into_;
};

/// Functions of one value.
std::optional<Term> function_of(const Node& node) {
  using Op = ChainOp;
  static const std::map<std::string_view, Op> plain = {
      {"Abs", Op::absolute},    {"Exp", Op::exponential},   {"Log", Op::logarithm},
      {"Neg", Op::negate},      {"Relu", Op::relu},         {"Reciprocal", Op::reciprocal},
      {"Sigmoid", Op::sigmoid}, {"Softplus", Op::softplus}, {"Sqrt", Op::square_root},
      {"Tanh", Op::tanh}};
  if (const auto found = plain.find(node.op); found != plain.end()) return Term{.op = found->second};
  const auto number = [&](const char* name, double otherwise) {
    return static_cast<float>(node.number(name, otherwise));
  };
  if (node.op == "Elu") return Term{.op = Op::elu, .first = number("alpha", 1.0)};
  if (node.op == "LeakyRelu") return Term{.op = Op::leaky_relu, .first = number("alpha", 0.01)};
  if (node.op == "HardSigmoid")
    return Term{.op = Op::hard_sigmoid, .first = number("alpha", 0.2), .second = number("beta", 0.5)};
  if (node.op == "Gelu" && node.text("approximate", "none") == "tanh") return Term{.op = Op::gelu};
  return std::nullopt;
}

/// Of a value, times that value.
std::vector<Term> factor_of(const Node& node) {
  if (node.op == "HardSwish") return {{.op = ChainOp::hard_sigmoid, .first = 1.0f / 6.0f, .second = 0.5f}};
  if (node.op == "Mish") return {{.op = ChainOp::softplus}, {.op = ChainOp::tanh}};
  return {};
}

/// Of two values.
std::optional<ChainOp> operation_of(const Node& node) {
  static const std::map<std::string_view, ChainOp> known = {
      {"Add", ChainOp::add},    {"Sub", ChainOp::subtract}, {"Mul", ChainOp::multiply},
      {"Div", ChainOp::divide}, {"Max", ChainOp::maximum},  {"Min", ChainOp::minimum}};
  const auto found = known.find(node.op);
  if (found == known.end() || node.inputs.size() != 2) return std::nullopt;
  return found->second;
}

/// What several nodes compute together.
struct Collected {
  Formula formula;
  std::vector<ValueId> inputs, constants;
  std::vector<std::size_t> nodes;
};

/// Collects nodes from the compiler's on: the most of which no value but the last is read elsewhere.
class Collector {
 public:
  explicit Collector(const Compiler& compiler)
      : compiler_(compiler), dims_(compiler.dims_of(compiler.node().outputs[0])) {
    const std::size_t first = compiler.node_number();
    for (std::size_t n = first; n < compiler.graph().nodes.size(); ++n) {
      if (!compiler.is_taken(n) && belongs(compiler.node(n))) nodes_.push_back(n);
      if (nodes_.empty()) return;
    }
    while (!nodes_.empty() && !is_closed()) nodes_.pop_back();
  }

  Collected collected() {
    Collected found{.nodes = nodes_};
    const std::vector<std::size_t> live = live_nodes();
    for (const std::size_t n : live)
      for (const ValueId id : values_of(compiler_.node(n))) {
        if (is_made(id) || is_number(id) || terms_.contains(id)) continue;
        terms_[id] = found.formula.size();
        found.inputs.push_back(id);
        found.formula.push_back({.wants_gradient = compiler_.wants_gradient(*compiler_.known(id))});
      }
    for (const std::size_t n : live) {
      add(compiler_.node(n), found);
      terms_[compiler_.node(n).outputs[0]] = found.formula.size() - 1;
    }
    return found;
  }

 private:
  /// The inputs of a node but those that are attributes.
  std::vector<ValueId> values_of(const Node& node) const {
    if (node.op == "Clip") return {node.inputs[0]};
    return node.inputs;
  }
  bool belongs(const Node& node) {
    const bool is_one = function_of(node) || operation_of(node) || node.op == "Clip";
    const std::size_t terms = term_count_ + factor_of(node).size() + 1;
    if ((!is_one && factor_of(node).empty()) || terms > most_terms) return false;
    if (compiler_.dims_of(node.outputs[0]) != dims_) return false;
    bool is_next = nodes_.empty(), has_tensor = false;
    std::set<ValueId> inputs = inputs_;
    for (const ValueId id : values_of(node)) {
      if (is_made(id)) {
        is_next = has_tensor = true;
      } else if (!is_number(id)) {
        if (!is_there(id)) return false;
        inputs.insert(id);
        has_tensor = true;
      }
    }
    if (!is_next || !has_tensor || inputs.size() > most_inputs) return false;
    inputs_ = std::move(inputs);
    term_count_ = terms;
    return true;
  }
  bool is_made(ValueId id) const {
    return std::any_of(nodes_.begin(), nodes_.end(),
                       [&](std::size_t n) { return compiler_.node(n).outputs[0] == id; });
  }
  /// One number that is not trained.
  bool is_number(ValueId id) const {
    const trainyard::GraphValue& value = compiler_.graph().values[static_cast<std::size_t>(id)];
    return value.initializer.defined() && !value.trainable && value.initializer.numel() == 1 &&
           value.dtype == at::kFloat;
  }
  bool is_there(ValueId id) const {
    const std::optional<ValueNumber> known = compiler_.known(id);
    return known && compiler_.value(*known).dtype == at::kFloat && compiler_.value(*known).dims == dims_;
  }
  bool is_closed() const {
    const trainyard::Graph& graph = compiler_.graph();
    for (std::size_t n = 0; n < graph.nodes.size(); ++n)
      if (std::find(nodes_.begin(), nodes_.end(), n) == nodes_.end())
        for (const ValueId id : graph.nodes[n].inputs)
          if (id != graph.nodes[nodes_.back()].outputs[0] && is_made(id)) return false;
    return std::none_of(graph.outputs.begin(), graph.outputs.end(), [&](ValueId id) {
      return id != graph.nodes[nodes_.back()].outputs[0] && is_made(id);
    });
  }

  /// Without those whose value nobody reads.
  std::vector<std::size_t> live_nodes() const {
    std::vector<std::size_t> live;
    std::set<ValueId> read;
    for (auto n = nodes_.rbegin(); n != nodes_.rend(); ++n) {
      const Node& node = compiler_.node(*n);
      if (!live.empty() && !read.contains(node.outputs[0])) continue;
      live.insert(live.begin(), *n);
      read.insert(node.inputs.begin(), node.inputs.end());
    }
    return live;
  }

  void add(const Node& node, Collected& found) {
    Formula& formula = found.formula;
    if (node.op == "Clip") {
      formula.push_back({.op = ChainOp::clip,
                         .a = terms_.at(node.inputs[0]),
                         .first = bound(node, 1, -std::numeric_limits<float>::infinity()),
                         .second = bound(node, 2, std::numeric_limits<float>::infinity())});
      return;
    }
    if (std::optional<Term> function = function_of(node)) {
      function->a = terms_.at(node.inputs[0]);
      formula.push_back(*function);
      return;
    }
    if (const std::vector<Term> factor = factor_of(node); !factor.empty()) {
      const std::size_t x = terms_.at(node.inputs[0]);
      std::size_t last = x;
      for (Term each : factor) {
        each.a = last;
        last = formula.size();
        formula.push_back(each);
      }
      formula.push_back({.op = ChainOp::multiply, .a = x, .b = last});
      return;
    }
    const ChainOp op = *operation_of(node);
    const ValueId a = node.inputs[0], b = node.inputs[1];
    if (!is_number(a) && !is_number(b)) {
      formula.push_back({.op = op, .a = terms_.at(a), .b = terms_.at(b)});
      return;
    }
    const ValueId constant = is_number(a) ? a : b;
    formula.push_back({.op = is_number(a) ? *flipped(op) : op,
                       .a = terms_.at(is_number(a) ? b : a),
                       .constant = found.constants.size()});
    found.constants.push_back(constant);
  }
  float bound(const Node& node, std::size_t index, float otherwise) const {
    if (index >= node.inputs.size() || node.inputs[index] == trainyard::no_value) return otherwise;
    return compiler_.graph().values[static_cast<std::size_t>(node.inputs[index])].initializer.item<float>();
  }

  const Compiler& compiler_;
  Dims dims_;
  std::vector<std::size_t> nodes_;
  std::set<ValueId> inputs_;
  std::size_t term_count_ = 0;
  std::map<ValueId, std::size_t> terms_;
};

/// A sum, perhaps with a ReLU, has an instruction that copies no gradient.
bool is_sum(const Compiler& compiler, const std::vector<std::size_t>& nodes) {
  return nodes.size() <= 2 && compiler.node(nodes[0]).op == "Add" &&
         (nodes.size() == 1 || compiler.node(nodes[1]).op == "Relu");
}

}  // namespace

bool chain_rule(Compiler& compiler) {
  if (compiler.node().outputs.size() != 1) return false;
  Collected found = Collector(compiler).collected();
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
