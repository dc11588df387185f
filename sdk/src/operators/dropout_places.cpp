#include "dropout_places.hpp"

#include <algorithm>
#include <map>

namespace trainyard {
namespace {

bool is_cell(const Node& node) {
  return node.op == "LSTM" && node.text("direction", "forward") == "forward";
}

/// y = x W^T + b as a layer of PyTorch computes it, its weight and bias parameters of the model.
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

/// The position in `inputs` of the weights that a node may have masked.
std::vector<std::size_t> weight_inputs(const Node& node) {
  if (node.op == "Gemm" || node.op == "Conv" || node.op == "MatMul") return {1};
  if (node.op == "LSTM") return {1, 2};
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
    for (const Node& node : graph_.nodes) add_site(node);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      for (const std::size_t input : weight_inputs(node)) add_weight(node.inputs[input]);
      if (is_cell(node)) places_.cells.push_back({node.name, node.integer("hidden_size", 0)});
      if (is_linear(graph_, node)) add_linear(i);
    }
    return std::move(places_);
  }

 private:
  const GraphValue& value(ValueId id) const { return graph_.values[static_cast<std::size_t>(id)]; }

  void add_site(const Node& node) {
    if (node.op != "Dropout") return;
    const std::vector<std::int64_t>& shape = value(node.inputs[0]).shape;
    std::int64_t axis = node.integer("axis", 1);
    if (axis < 0) axis += static_cast<std::int64_t>(shape.size());
    sites_.emplace(node.outputs[0], places_.sites.size());
    places_.sites.push_back({.id = node.name,
                             .rank = static_cast<std::int64_t>(shape.size()),
                             .axis = axis,
                             .width = shape[static_cast<std::size_t>(axis)],
                             .rows = std::max<std::int64_t>(1, -shape.front())});
  }

  /// One that something else reads, too (an embedding that the output is tied to), is left alone.
  void add_weight(ValueId id) {
    if (value(id).trainable && uses_[static_cast<std::size_t>(id)] == 1)
      places_.weights.push_back({value(id).name, value(id).shape});
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

  /// Node `index` where it alone reads the output of `node`.
  const Node* only_reader(const Node& node, std::size_t index) const {
    if (index >= graph_.nodes.size() || uses_[static_cast<std::size_t>(node.outputs[0])] != 1) return nullptr;
    const Node& next = graph_.nodes[index];
    return next.inputs[0] == node.outputs[0] ? &next : nullptr;
  }

  const Graph& graph_;
  std::vector<int> uses_;  ///< of each value
  std::map<ValueId, std::size_t> sites_;
  DropoutPlaces places_;
};

}  // namespace

DropoutPlaces find_dropout_places(const Graph& graph) {
  return Finder(graph).run();
}

std::optional<std::size_t> cell_number(const Graph& graph, const Node& node) {
  if (!is_cell(node)) return std::nullopt;
  std::size_t number = 0;
  for (const Node& each : graph.nodes) {
    if (each.name == node.name) break;
    number += is_cell(each);
  }
  return number;
}

std::size_t nodes_of(const DropoutLinear& linear) {
  return !linear.output_site ? 1 : linear.relu ? 3 : 2;
}

}  // namespace trainyard
