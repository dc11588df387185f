// Weights that are joined lie behind each other in memory, so that joining them is a view: each stays the parameter that it was.
#pragma once

#include <cstddef>

#include <trainyard/graph/graph.hpp>
#include <trainyard/network.hpp>

namespace tensat {

/// Moves the parameters that nodes Concat join along their first axis behind each other, each once. Returns how many.
std::size_t lay_behind_each_other(trainyard::Graph& graph);

/// Does the same for a network in use: its tensors stay the handles that they are.
std::size_t lay_behind_each_other(trainyard::Network& network);

}  // namespace tensat
