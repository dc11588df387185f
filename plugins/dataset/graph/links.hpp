// The edges of a graph as samples (Kipf and Welling, "Variational graph auto-encoders", NeurIPS workshop
// 2016): messages go over those for training alone, and negatives are pairs that no split has an edge
// between.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <trainyard/random.hpp>

#include "node_graph.hpp"

namespace graph {

/// A message goes from the first to the second; where they go both ways the first is the lower.
using Edge = std::array<std::int64_t, 2>;

struct Links {
  std::shared_ptr<const NodeGraph> graph;
  bool undirected = true;
  std::map<std::string, std::vector<Edge>, std::less<>> splits;
  Csr messages;  ///< the edges for training, and the graph's self loops
  Csr known;     ///< to whom a node has an edge in any split, and the node itself

  /// Whether a node has an edge to every other.
  bool full(std::int64_t node) const { return known.degree(node) == known.nodes(); }
  /// A pair that is no edge: one end of the edge, and any of the nodes that it has no edge to, each equally
  /// often; the end that stays is the first, or either where edges have no direction. Elements 2 `number` and
  /// 2 `number` + 1 of the stream say which. Not for an edge whose ends are full.
  Edge negative(const Edge& edge, const trainyard::RandomStream& random, std::uint64_t number) const;
};

/// A self loop is no sample, and an edge that is given twice is one. Equal arguments give one object while it
/// is in use. Any thread. Throws ConfigError.
std::shared_ptr<const Links> open_links(std::shared_ptr<const NodeGraph> graph, bool undirected,
                                        const Shares& shares);

}  // namespace graph
