// METIS beside the streaming rules: it sees the whole graph, and cuts edges (Karypis and Kumar, "A fast and high quality
// multilevel scheme for partitioning irregular graphs", SIAM J. Sci. Comput. 1998).
#pragma once

#include <vector>

#include "graph.hpp"
#include "stream.hpp"

namespace partition {

struct NodesCut {
  Assigned edges;                ///< each in the cluster of one of its ends
  std::vector<Cluster> masters;  ///< the cluster of each node, as METIS says it
};

/// Cuts nodes into clusters whose weights, those of their edges, are within METIS's 3 %, so that few edges are cut, or edges of
/// little weight. It is computed in a process of its own:
/// METIS takes SIGTERM and SIGABRT to itself as it works, ends the process where it has no memory, and hears no stop. Throws
/// DataError where it fails, or the graph is too large for its 32 bits.
NodesCut cut_by_metis(const Graph& graph, bool by_weight, const Settings& settings);

}  // namespace partition
