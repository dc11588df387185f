// The table that `trainyard model show` prints.
#pragma once

#include <optional>
#include <string>

#include <trainyard/dropout.hpp>
#include <trainyard/graph/graph.hpp>

namespace trainyard::train {

/// Returns the cost of all nodes of a graph for one sample. Needs shapes.
NodeCost whole_cost(const Graph& graph);

/// Returns a table of layers (operator, output shape, parameters and multiply-adds of one sample), the sums,
/// those of the network `before` its transforms where it has any, and the places where dropout may act.
/// Needs shapes.
std::string show(const Graph& graph, const DropoutPlaces& places, const std::optional<NodeCost>& before);

}  // namespace trainyard::train
