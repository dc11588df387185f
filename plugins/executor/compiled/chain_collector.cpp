#include "chain_collector.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace compiled {
namespace {

using trainyard::Node;
using trainyard::ValueId;

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

class Collector {
 public:
  Collector(const Progress& progress, std::size_t first)
      : progress_(progress), dims_(progress.dims_of(progress.node(first).outputs[0])) {
    for (std::size_t n = first; n < progress.graph().nodes.size(); ++n) {
      if (!progress.is_taken(n) && belongs(progress.node(n))) nodes_.push_back(n);
      if (nodes_.empty()) return;
    }
    while (!nodes_.empty() && !is_closed()) nodes_.pop_back();
  }

  Collected collected() {
    Collected found{.nodes = nodes_};
    const std::vector<std::size_t> live = live_nodes();
    for (const std::size_t n : live)
      for (const ValueId id : values_of(progress_.node(n))) {
        if (is_made(id) || is_number(id) || terms_.contains(id)) continue;
        terms_[id] = found.formula.size();
        found.inputs.push_back(id);
        found.formula.push_back({.wants_gradient = progress_.wants_gradient_of(id)});
      }
    for (const std::size_t n : live) {
      add(progress_.node(n), found);
      terms_[progress_.node(n).outputs[0]] = found.formula.size() - 1;
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
    if (progress_.dims_of(node.outputs[0]) != dims_) return false;
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
                       [&](std::size_t n) { return progress_.node(n).outputs[0] == id; });
  }
  /// One number that is not trained.
  bool is_number(ValueId id) const {
    const trainyard::GraphValue& value = progress_.graph().values[static_cast<std::size_t>(id)];
    return value.initializer.defined() && !value.trainable && value.initializer.numel() == 1 &&
           value.dtype == at::kFloat;
  }
  bool is_there(ValueId id) const { return progress_.has_floats(id) && progress_.dims_of(id) == dims_; }
  bool is_closed() const {
    const trainyard::Graph& graph = progress_.graph();
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
      const Node& node = progress_.node(*n);
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
    return progress_.graph().values[static_cast<std::size_t>(node.inputs[index])].initializer.item<float>();
  }

  const Progress& progress_;
  std::vector<std::int64_t> dims_;
  std::vector<std::size_t> nodes_;
  std::set<ValueId> inputs_;
  std::size_t term_count_ = 0;
  std::map<ValueId, std::size_t> terms_;
};

}  // namespace

Collected collect_chain(const Progress& progress, std::size_t first) {
  return Collector(progress, first).collected();
}

}  // namespace compiled
