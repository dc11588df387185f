// Cuts a graph into parts that run one after another, for executors that spread a model over threads or
// devices.
#pragma once

#include <span>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/graph/graph.hpp>

TRAINYARD_CONTRACT("graph/cut.hpp");

namespace trainyard {

/// Cuts a graph, whose shapes are inferred, into parts 0 .. the largest number in `part_of_node`, which has
/// the part of each node. Part 0 takes the inputs of the graph, each other part the outputs of the one before,
/// in their order; the last gives the outputs of the graph. A value that is needed further on is passed
/// through every part between: there it is an input and an output. Names of nodes and values stay.
///
/// Initializers lie in the parts that read them, and where several read one, in each of them by the same
/// handle: a weight that is shared has one gradient, to which each part's backward adds.
///
/// Run one after another, each on the outputs of the one before, the parts give what the graph gives, to the
/// bit. So does backward, part by part from the last and with gradients as torch::autograd::grad gives them,
/// but for the order in which terms of one gradient are added: those of a value with three readers or more,
/// where parts do not follow the order of the nodes, and those of a shared weight. (A leaf's .grad may lie in
/// memory in another way, and sums over it be rounded differently.) A network of a part has its own numbers
/// of dropout places, and the names, on which random streams depend, of the whole.
///
/// Throws ConfigError where a node reads what a later part makes, with both nodes and their parts, where a
/// part has no node, and where `part_of_node` has another length than the nodes or a number below 0.
std::vector<Graph> cut(const Graph& graph, std::span<const int> part_of_node);

}  // namespace trainyard
