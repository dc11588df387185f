// The table that `trainyard model show` prints.
#pragma once

#include <string>

#include <trainyard/dropout.hpp>
#include <trainyard/graph/graph.hpp>

namespace trainyard::train {

/// Returns a table of layers (operator, output shape, parameters and multiply-adds of one sample), the sums,
/// and the places where dropout may act. Needs shapes.
std::string show(const Graph& graph, const DropoutPlaces& places);

}  // namespace trainyard::train
