// A graph as it lies in memory, in a file that is mapped: it is read once from its own files, and shared by
// the processes of a machine.
#pragma once

#include <optional>
#include <string>

#include "node_graph.hpp"

namespace graph {

/// The file of a folder for a graph of that name, a text that may be long.
std::string kept_file(const std::string& folder, const std::string& name);

/// The graph of that name; nothing where the file is not there. Throws DataError where it is damaged.
std::optional<NodeGraph> map_kept(const std::string& file, const std::string& name);

/// Writes the file anew, at once and whole. Throws DataError where that cannot be done.
void keep(const std::string& file, const std::string& name, const NodeGraph& graph);

}  // namespace graph
