// The table that `trainyard model show` prints.
#pragma once

#include <string>

#include <trainyard/graph.hpp>

namespace trainyard::train {

/// Layers with operator, output shape, parameters and multiply-adds of one sample, their sums, and the
/// dropout sites. Needs shapes.
std::string show(const Graph& graph);

}  // namespace trainyard::train
