#include "constants.hpp"

#include <algorithm>
#include <set>

#include <ATen/core/grad_mode.h>

#include <trainyard/forward_context.hpp>
#include <trainyard/graph/network.hpp>

using namespace trainyard;

Graph with_tensors(Graph graph, const std::vector<NamedTensor>& tensors) {
  for (const auto& [name, tensor] : tensors)
    if (const ValueId id = graph.find_value(name); id != no_value)
      graph.values[static_cast<std::size_t>(id)].initializer = tensor;
  return graph;
}

Constants::Constants(const Graph& graph) {
  for (std::size_t i = 0; i < graph.values.size(); ++i)
    if (const at::Tensor& tensor = graph.values[i].initializer; tensor.defined())
      tensors_[static_cast<ValueId>(i)] = tensor.detach().cpu();
  Graph copy = graph;
  for (const auto& [id, tensor] : tensors_) copy.values[static_cast<std::size_t>(id)].initializer = tensor;
  GraphNetwork network(std::move(copy));
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const auto known = [&](ValueId id) { return id == no_value || tensors_.contains(id); };
    if (!std::ranges::all_of(node.inputs, known)) continue;
    std::vector<at::Tensor> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(id == no_value ? at::Tensor() : tensors_.at(id));
    const std::vector<at::Tensor> outputs = network.run_node(i, inputs, {});
    for (std::size_t k = 0; k < outputs.size(); ++k) tensors_[node.outputs[k]] = outputs[k];
  }
}

std::vector<NamedTensor> materialized(const Graph& graph, const std::vector<NamedTensor>& tensors) {
  const Graph with = with_tensors(graph, tensors);
  const Constants constants(with);
  std::set<ValueId> read, inner;  // by nodes that an input meets; by others
  std::vector<NamedTensor> all;
  for (const Node& node : with.nodes)
    for (const ValueId id : node.inputs)
      if (constants.contains(id)) (constants.contains(node.outputs[0]) ? inner : read).insert(id);
  for (const NamedTensor& each : tensors)
    if (const ValueId id = with.find_value(each.name); read.contains(id) || !inner.contains(id))
      all.push_back(each);
  for (const ValueId id : read)
    if (const GraphValue& value = with.values[static_cast<std::size_t>(id)]; !value.initializer.defined())
      all.push_back({value.name, constants.at(id)});
  return all;
}
