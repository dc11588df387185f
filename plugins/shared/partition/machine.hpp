// A made-up machine that runs the nodes of a graph: a serial core a cluster, which takes the ready node with the longest
// way to the end, and a latency for each edge between two cores; nothing else takes time. Its times are no measurements.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "graph.hpp"

namespace partition {

inline constexpr Cluster no_master = 65535;

/// The graph as tasks: the source of an edge is computed ahead of its target.
struct Tasks {
  std::vector<std::uint32_t> begin;  ///< successors of node i are those from begin[i] on
  std::vector<Node> successors;
  std::vector<std::uint32_t> waits;  ///< number of edges to each node
  std::vector<double> costs;
  std::vector<Node> order;  ///< each behind all that it waits for
  double total = 0.0;
  double longest = 0.0;  ///< cost of the costliest way through the graph

  /// No machine of so many cores is faster.
  double bound(std::size_t cores) const { return std::max(total / static_cast<double>(cores), longest); }
};

/// Throws ConfigError where edges go round in a circle.
Tasks tasks_of(const Graph& graph);

/// Returns the cluster that computes each node: that with the greatest weight of edges to the node, without any that of edges
/// from it; a node without edges goes to the cluster with least to do.
std::vector<Cluster> masters_of(const Graph& graph, std::span<const Cluster> assigned, std::size_t clusters);

/// Costs of the costliest way from each node to an end, the node included, with `latency` for each edge.
std::vector<double> ranks_of(const Tasks& tasks, double latency);

/// Returns the time at which the last node is done.
double makespan_of(const Tasks& tasks, std::span<const Cluster> masters, std::size_t clusters,
                   double latency);

struct Schedule {
  std::vector<Cluster> masters;  ///< empty where it was stopped
  double makespan = 0.0;
};

/// Places nodes by their ranks, each where it is done first, in gaps as well (Topcuoglu, Hariri and Wu, "Performance-effective
/// and low-complexity task scheduling for heterogeneous computing", TPDS 2002).
Schedule schedule_by_heft(const Tasks& tasks, std::size_t clusters, double latency,
                          const std::atomic<bool>& stop);

}  // namespace partition
