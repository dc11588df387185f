// What an assignment is worth, found anew from it alone.
#pragma once

#include <span>
#include <string>

#include "graph.hpp"

namespace partition {

struct Quality {
  double replication = 0.0;       ///< clusters that hold a node, on average
  double weight_imbalance = 0.0;  ///< the heaviest cluster's weight over the mean
  double count_imbalance = 0.0;   ///< the same of the number of edges
  double largest_load = 0.0;      ///< weight of the heaviest cluster
  double communication = 0.0;     ///< costs of all nodes, each as often as it has clusters beyond the first
};

Quality quality_of(const Graph& graph, std::span<const Cluster> assigned, std::size_t clusters);

/// Returns 16 hexadecimal digits that tell assignments apart.
std::string hash_of(std::span<const Cluster> assigned);

}  // namespace partition
