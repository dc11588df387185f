#include "constants.hpp"

#include <algorithm>
#include <vector>

#include <ATen/core/grad_mode.h>

#include <trainyard/forward_context.hpp>
#include <trainyard/graph/network.hpp>

using namespace trainyard;

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
