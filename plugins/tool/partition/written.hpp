// The files that the tool leaves.
#pragma once

#include <span>
#include <string>

#include "../../shared/partition/graph.hpp"

namespace partition {

/// Writes the cluster of each edge, a line an edge in the order of the file; it appears when it is whole. Throws DataError.
void write_assignment(const std::string& path, std::span<const Cluster> assigned);

/// Writes a line a node: the cluster that computes it, then the others that hold an edge of it, ascending.
void write_nodes(const std::string& path, const Graph& graph, std::span<const Cluster> assigned,
                 std::span<const Cluster> masters, std::size_t clusters);

}  // namespace partition
