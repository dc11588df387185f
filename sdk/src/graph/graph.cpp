#include <set>

#include <trainyard/error.hpp>
#include <trainyard/graph/graph.hpp>

#include "operators/operator.hpp"

namespace trainyard {
namespace {

template <class T>
const T* find(const Node& node, std::string_view attribute, const char* expected) {
  const auto found = node.attributes.find(attribute);
  if (found == node.attributes.end()) return nullptr;
  if (const T* value = std::get_if<T>(&found->second)) return value;
  static constexpr const char* types[] = {"an integer", "a number", "text",    "integers",
                                          "numbers",    "texts",    "a tensor"};
  throw PluginError("node \"" + node.name + "\" (" + node.op + "): attribute `" + std::string(attribute) +
                    "` is " + types[found->second.index()] + ", expected " + expected);
}

[[noreturn]] void fail(const Node& node, const std::string& message) {
  throw ConfigError("node \"" + node.name + "\" (" + node.op + "): " + message);
}

}  // namespace

std::int64_t Node::integer(std::string_view attribute, std::int64_t fallback) const {
  const auto* value = find<std::int64_t>(*this, attribute, "an integer");
  return value ? *value : fallback;
}

double Node::number(std::string_view attribute, double fallback) const {
  const auto* value = find<double>(*this, attribute, "a number");
  return value ? *value : fallback;
}

std::string Node::text(std::string_view attribute, std::string fallback) const {
  const auto* value = find<std::string>(*this, attribute, "text");
  if (value) return *value;
  return fallback;
}

std::vector<std::int64_t> Node::integers(std::string_view attribute,
                                         std::vector<std::int64_t> fallback) const {
  const auto* value = find<std::vector<std::int64_t>>(*this, attribute, "integers");
  if (value) return *value;
  return fallback;
}

ValueId Graph::add_value(GraphValue value) {
  if (value.initializer.defined()) {
    value.shape = value.initializer.sizes().vec();
    value.dtype = value.initializer.scalar_type();
  }
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size()) - 1;
}

ValueId Graph::find_value(std::string_view name) const {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i].name == name) return static_cast<ValueId>(i);
  return no_value;
}

void Graph::infer_shapes() {
  std::set<std::string_view> value_names, node_names;
  std::vector<bool> defined(values.size());
  const auto check_id = [&](ValueId id) {
    if (id < 0 || static_cast<std::size_t>(id) >= values.size())
      throw ConfigError("graph: value id " + std::to_string(id) + " is outside of its " +
                        std::to_string(values.size()) + " values");
    return static_cast<std::size_t>(id);
  };

  for (std::size_t i = 0; i < values.size(); ++i) {
    GraphValue& value = values[i];
    if (value.name.empty() || !value_names.insert(value.name).second)
      throw ConfigError("graph: value " + std::to_string(i) +
                        (value.name.empty() ? " has no name" : " repeats the name \"" + value.name + "\""));
    if (!value.initializer.defined()) continue;
    value.shape = value.initializer.sizes().vec();
    value.dtype = value.initializer.scalar_type();
    defined[i] = true;
  }
  for (const ValueId id : inputs) defined[check_id(id)] = true;

  for (const Node& node : nodes) {
    if (node.name.empty()) fail(node, "has no name");
    if (!node_names.insert(node.name).second) fail(node, "repeats the name of another node");
    for (const ValueId id : node.inputs)
      if (id != no_value && !defined[check_id(id)])
        fail(node, "reads value \"" + values[static_cast<std::size_t>(id)].name + "\" before it is produced");
    const std::vector<TensorType> types = infer(NodeView(*this, node));
    for (std::size_t k = 0; k < types.size(); ++k) {
      if (node.outputs[k] == no_value) continue;  // an optional output that nobody reads
      const std::size_t output = check_id(node.outputs[k]);
      GraphValue& value = values[output];
      if (defined[output]) fail(node, "produces value \"" + value.name + "\", which has a producer already");
      defined[output] = true;
      value.shape = types[k].shape;
      value.dtype = types[k].dtype;
    }
  }
  for (const ValueId id : outputs)
    if (!defined[check_id(id)])
      throw ConfigError("graph: output \"" + values[static_cast<std::size_t>(id)].name +
                        "\" is never produced");
}

NodeCost cost(const Graph& graph, const Node& node) {
  NodeCost result;
  std::set<ValueId> earlier;
  for (const Node& other : graph.nodes) {
    if (other.name == node.name) break;
    earlier.insert(other.inputs.begin(), other.inputs.end());
  }
  for (const ValueId id : std::set<ValueId>(node.inputs.begin(), node.inputs.end())) {
    if (id == no_value || earlier.contains(id)) continue;
    const GraphValue& value = graph.values[static_cast<std::size_t>(id)];
    if (value.trainable) result.parameters += value.initializer.numel();
  }
  const Operator* entry = find_operator(node.op);
  if (entry != nullptr && entry->multiply_adds != nullptr)
    result.multiply_adds = entry->multiply_adds(NodeView(graph, node));
  return result;
}

}  // namespace trainyard
