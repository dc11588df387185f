// Which part of a model is a stage.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <trainyard/graph/graph.hpp>

namespace pipelined {

using namespace trainyard;

/// The stage of each node. `stages` 0: each layer (../layers.hpp) is one; else so many, of layers that cost about the
/// same. Throws ConfigError where there are fewer layers than that, and where a parameter is read in two stages, which
/// would update it at different times.
std::vector<int> stage_of_nodes(const Graph& graph, std::int64_t stages);

}  // namespace pipelined
