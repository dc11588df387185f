// The table that `trainyard model show` prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/dropout.hpp>
#include <trainyard/graph/graph.hpp>

namespace trainyard::train {

/// Aligns columns by their longest entry, those from the index `numbers` on to the right.
std::string aligned(const std::vector<std::vector<std::string>>& rows, std::size_t numbers = SIZE_MAX);

/// Returns the cost of all nodes of a graph for one sample. Needs shapes.
NodeCost whole_cost(const Graph& graph);

/// Returns a table of layers (operator, output shape, parameters and multiply-adds of one sample), the sums,
/// those of the network `before` its transforms where it has any, and the places where dropout may act.
/// Needs shapes.
std::string show(const Graph& graph, const DropoutPlaces& places, const std::optional<NodeCost>& before);

}  // namespace trainyard::train
