// A graph as a stream of edges, in the order of its file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace partition {

using Node = std::uint32_t;
using Cluster = std::uint16_t;

struct Edge {
  Node source, target;
};

inline constexpr std::size_t most_edges = (std::size_t{1} << 31) - 1;  ///< places of replicas have 32 bits
inline constexpr std::size_t most_clusters = 65535;                    ///< one value says that there is none
inline constexpr double least_weight = 1e-12;                          ///< which a weight of 0 counts as

/// The edges lie in `owner`: in memory, or mapped from a file.
struct Graph {
  std::span<const Edge> edges;
  std::span<const double> weights;     ///< one an edge; empty: all are 1
  std::vector<std::uint32_t> degrees;  ///< by node; an edge from a node to itself counts once
  std::size_t nodes = 0;               ///< those that an edge names, or, where `costs` are given, all
  std::vector<double> costs;           ///< of computing each node; empty: all are 1
  double total_weight = 0.0, largest_weight = 0.0;
  std::shared_ptr<const void> owner;

  double weight(std::size_t edge) const {
    return weights.empty() ? 1.0 : std::max(weights[edge], least_weight);
  }
  double cost(Node node) const { return costs.empty() ? 1.0 : costs[node]; }
};

/// Counts what follows from edges, weights and costs: degrees, nodes, sums. The nodes of all edges are below `ids`.
void count(Graph& graph, std::size_t ids);

/// The order in which edges are seen; `given` is that of the file.
enum class Order : std::uint8_t { given, shuffled, bfs, degrees };
inline constexpr std::string_view order_words[] = {"given", "shuffled", "bfs", "degrees"};

/// Returns the places of the edges in that order; empty where it is the given one. `bfs` begins at the lowest
/// node and takes the edges of a node as it is reached, whatever their direction; `degrees` is ascending by the sum of both ends' degrees,
/// as EBV's authors have it.
std::vector<std::uint32_t> order_of(const Graph& graph, Order order, std::uint64_t seed);

}  // namespace partition
