#include "dropout_places.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace trainyard {
namespace {

bool is_cell(const Node& node) {
  return node.op == "LSTM" && node.text("direction", "forward") == "forward";
}

bool is_site(const Node& node) {
  return node.op == "Dropout" || node.op == "Attention";
}

bool is_activation(const Node& node) {
  static constexpr std::string_view names[] = {"Clip", "Elu",  "Gelu",    "LeakyRelu",
                                               "Relu", "Selu", "Sigmoid", "Tanh"};
  return std::find(std::begin(names), std::end(names), node.op) != std::end(names);
}

/// Returns the number of `node` among the nodes that are `one`; none where it is not.
template <class IsOne>
std::optional<std::size_t> number_among(const Graph& graph, const Node& node, const IsOne& one) {
  if (!one(node)) return std::nullopt;
  std::size_t number = 0;
  for (const Node& each : graph.nodes) {
    if (each.name == node.name) break;
    number += one(each);
  }
  return number;
}

/// Returns whether a node is y = x W^T + b as PyTorch has it, with weight and bias parameters of the model.
bool is_linear(const Graph& graph, const Node& node) {
  if (node.op != "Gemm" || node.integer("transA", 0) != 0 || node.integer("transB", 0) != 1 ||
      node.number("alpha", 1.0) != 1.0 || node.number("beta", 1.0) != 1.0)
    return false;
  const auto value = [&](std::size_t input) -> const GraphValue& {
    return graph.values[static_cast<std::size_t>(node.inputs[input])];
  };
  const bool bias = node.inputs.size() > 2 && node.inputs[2] != no_value;
  return value(1).trainable && (!bias || (value(2).trainable && value(2).shape.size() == 1));
}

/// Returns the positions in `inputs` of the weights that a node may have masked.
std::vector<std::size_t> weight_inputs(const Node& node) {
  if (node.op == "Gemm" || node.op == "Conv" || node.op == "MatMul") return {1};
  if (node.op == "LSTM" || node.op == "GRU" || node.op == "RNN") return {1, 2};
  return {};
}

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), uses_(graph.values.size(), 0) {
    for (const Node& node : graph.nodes)
      for (const ValueId id : node.inputs)
        if (id != no_value) ++uses_[static_cast<std::size_t>(id)];
    for (const ValueId id : graph.outputs) ++uses_[static_cast<std::size_t>(id)];
  }

  DropoutPlaces run() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) add_site(i);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      for (const std::size_t input : weight_inputs(node)) add_weight(node, input);
      if (is_cell(node)) places_.cells.push_back({node.name, node.integer("hidden_size", 0)});
      if (is_linear(graph_, node)) add_linear(i);
    }
    return std::move(places_);
  }

  std::size_t activation_nodes(std::size_t index) const {
    const auto next = [&](std::size_t after) { return only_reader(graph_.nodes[after - 1], after); };
    const Node* reshape = next(index + 1);
    const std::size_t between = reshape != nullptr && reshape->op == "Reshape" ? 1 : 0;
    const Node* activation = next(index + between + 1);
    return activation != nullptr && is_activation(*activation) ? between + 1 : 0;
  }

 private:
  const GraphValue& value(ValueId id) const { return graph_.values[static_cast<std::size_t>(id)]; }

  void add_site(std::size_t index) {
    const Node& node = graph_.nodes[index];
    if (node.op == "Attention") add_attention(node);
    if (node.op != "Dropout") return;
    const std::vector<std::int64_t>& shape = value(node.inputs[0]).shape;
    std::int64_t axis = node.integer("axis", 1);
    if (axis < 0) axis += static_cast<std::int64_t>(shape.size());
    sites_.emplace(node.outputs[0], places_.sites.size());
    places_.sites.push_back({.id = node.name,
                             .rank = static_cast<std::int64_t>(shape.size()),
                             .axis = axis,
                             .width = shape[static_cast<std::size_t>(axis)],
                             .rows = std::max<std::int64_t>(1, -shape.front()),
                             .head = is_head(index)});
  }

  /// Returns whether all later nodes, and the graph's outputs, read only its outputs, values computed from
  /// these, and initializers.
  bool is_head(std::size_t index) const {
    std::set<ValueId> after(graph_.nodes[index].outputs.begin(), graph_.nodes[index].outputs.end());
    const auto known = [&](ValueId id) {
      return id == no_value || value(id).initializer.defined() || after.contains(id);
    };
    for (std::size_t i = index + 1; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (!std::all_of(node.inputs.begin(), node.inputs.end(), known)) return false;
      after.insert(node.outputs.begin(), node.outputs.end());
    }
    return std::all_of(graph_.outputs.begin(), graph_.outputs.end(), known);
  }

  /// Adds the weights [batch, heads, query time, key time]; their features are the heads.
  void add_attention(const Node& node) {
    const bool flat = value(node.inputs[0]).shape.size() == 3;
    places_.sites.push_back({.id = node.name + "_weights",
                             .rank = 4,
                             .axis = 1,
                             .width = flat ? node.integer("q_num_heads", 0) : value(node.inputs[0]).shape[1],
                             .by_name = true});
  }

  /// Leaves a weight alone that something else reads, too (an embedding that the output is tied to).
  void add_weight(const Node& node, std::size_t input) {
    const ValueId id = node.inputs[input];
    if (value(id).trainable && uses_[static_cast<std::size_t>(id)] == 1)
      places_.weights.push_back(
          {.id = value(id).name, .shape = value(id).shape, .linear = is_linear(graph_, node)});
  }

  void add_linear(std::size_t index) {
    const Node& node = graph_.nodes[index];
    const std::vector<std::int64_t>& shape = value(node.inputs[1]).shape;
    DropoutLinear linear{
        .id = node.name, .in = shape[1], .out = shape[0], .input_site = {}, .output_site = {}};
    if (const auto site = sites_.find(node.inputs[0]); site != sites_.end()) linear.input_site = site->second;
    const Node* last = &node;
    if (const Node* next = only_reader(*last, index + 1); next != nullptr && next->op == "Relu") {
      linear.relu = true;
      last = next;
    }
    if (const Node* next = only_reader(*last, index + (linear.relu ? 2 : 1));
        next != nullptr && next->op == "Dropout")
      linear.output_site = sites_.at(next->outputs[0]);
    else
      linear.relu = false;
    if (linear.input_site || linear.output_site) places_.linears.push_back(std::move(linear));
  }

  /// Returns node `index` if it is the only reader of the output of `node`, else null.
  const Node* only_reader(const Node& node, std::size_t index) const {
    if (index >= graph_.nodes.size() || uses_[static_cast<std::size_t>(node.outputs[0])] != 1) return nullptr;
    const Node& next = graph_.nodes[index];
    return next.inputs[0] == node.outputs[0] ? &next : nullptr;
  }

  const Graph& graph_;
  std::vector<int> uses_;  ///< number of readers of each value
  std::map<ValueId, std::size_t> sites_;
  DropoutPlaces places_;
};

}  // namespace

DropoutPlaces find_dropout_places(const Graph& graph) {
  return Finder(graph).run();
}

std::optional<std::size_t> site_number(const Graph& graph, const Node& node) {
  return number_among(graph, node, is_site);
}

std::optional<std::size_t> cell_number(const Graph& graph, const Node& node) {
  return number_among(graph, node, is_cell);
}

std::size_t nodes_of(const DropoutLinear& linear) {
  return !linear.output_site ? 1 : linear.relu ? 3 : 2;
}

std::size_t activation_nodes(const Graph& graph, std::size_t index) {
  return Finder(graph).activation_nodes(index);
}

}  // namespace trainyard
