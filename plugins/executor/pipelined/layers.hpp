// Which part of a model is a stage.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <trainyard/graph/graph.hpp>

namespace pipelined {

using namespace trainyard;

/// Splits items into at most `parts` runs one behind the other, none of them empty, whose largest sum is as small
/// as can be; gives the run of each item.
std::vector<int> balanced(std::span<const double> costs, std::int64_t parts);

/// The stage of each node. A layer begins at each node with a trainable matrix or kernel, and has those after it
/// that have none; those ahead of the first are of the first. `stages` 0: each layer is one; else so many, of
/// layers that cost about the same. Throws ConfigError where there are fewer layers than that, and where a
/// parameter is read in two stages, which would update it at different times.
std::vector<int> stage_of_nodes(const Graph& graph, std::int64_t stages);

}  // namespace pipelined
