// Checks the inputs of a batch, for executors that compute nodes by themselves.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>
#include <trainyard/graph/graph.hpp>

TRAINYARD_CONTRACT("graph/inputs.hpp");

namespace trainyard {

/// Throws PluginError where the inputs are not those that the graph takes: another number of them, another
/// type, or another shape beyond the batch. GraphNetwork::forward calls it by itself.
void check_inputs(const Graph& graph, const std::vector<at::Tensor>& inputs);

}  // namespace trainyard
