// Rules that give each edge of a stream to a cluster, seeing it once.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "algorithm.hpp"
#include "graph.hpp"

namespace partition {

struct Settings {
  std::size_t clusters = 8;
  double lambda = 1.0;  ///< of `wb_`: the bound is so many times the mean load; less than 1 is as 1
  double hdrf_lambda = 1.0;
  std::uint64_t seed = 0;                ///< of the hashes of dbh and random
  std::span<const std::uint32_t> order;  ///< empty: as given
  const std::atomic<bool>* stop = nullptr;
};

struct Assigned {
  std::vector<Cluster> clusters;  ///< by edge, in the order of the file; empty where it was stopped
  std::size_t bytes = 0;          ///< that were held beside the edges, the assignment included
};

/// The load from which on `wb_` gives a cluster no more edges, but where all have as much.
double bound_of(const Graph& graph, const Settings& settings);

/// Runs a rule, one ahead of `metis`, on one thread: the same edges, order and settings give the same clusters.
Assigned stream(const Graph& graph, Algorithm rule, const Settings& settings);

}  // namespace partition
