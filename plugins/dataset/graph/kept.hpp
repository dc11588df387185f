// A graph as it lies in memory, in a file that is mapped.
#pragma once

#include <optional>

#include "../kept_file.hpp"
#include "node_graph.hpp"

namespace graph {

/// The file of a folder for a graph of that name.
datasets::KeptFile kept_graph(const std::string& folder, const std::string& name);

/// The graph of the file; nothing where it is not there. Throws DataError where it is damaged.
std::optional<NodeGraph> map_kept(const datasets::KeptFile& file);

/// Throws DataError where that cannot be done.
void keep(const datasets::KeptFile& file, const NodeGraph& graph);

}  // namespace graph
