// Files of edges: lines of text, or the form in which edges lie in memory.
#pragma once

#include <atomic>
#include <string>

#include "../../shared/partition/graph.hpp"

namespace partition {

/// Reads a file of edges. Text: a line an edge, "from to" or "from to weight", with blanks, tabs or a comma between them;
/// lines that begin with # or % are comments. Binary: "tyedges1", the number of edges and 1 or 0 for with or without
/// weights, 8 bytes each; 4 and 4 bytes an edge; then its weights, 8 bytes each; all of this processor's byte order. It is
/// mapped. `costs`, a file of one number a line, says what it costs to compute each node, and how many there are; empty: 1 each.
/// Throws DataError with the place. Where it is stopped, what it returns is not whole.
Graph read_graph(const std::string& path, const std::string& costs, const std::atomic<bool>& stop);

/// Writes the binary form; the file appears when it is whole. Throws DataError.
void write_edges(const std::string& path, const Graph& graph);

}  // namespace partition
