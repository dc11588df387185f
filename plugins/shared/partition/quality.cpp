#include "quality.hpp"

#include "lib/fnv1a.hpp"
#include "replicas.hpp"

namespace partition {
namespace {

template <class Replicas>
Quality quality_by(const Graph& graph, std::span<const Cluster> assigned, std::size_t clusters) {
  Replicas replicas(graph, clusters);
  std::vector<double> weights(clusters, 0.0), counts(clusters, 0.0);
  for (std::size_t i = 0; i < assigned.size(); ++i) {
    replicas.add(graph.edges[i].source, assigned[i]);
    replicas.add(graph.edges[i].target, assigned[i]);
    weights[assigned[i]] += graph.weight(i);
    counts[assigned[i]] += 1.0;
  }
  Quality found;
  double held = 0.0;
  for (std::size_t i = 0; i < graph.degrees.size(); ++i) {
    const auto node = static_cast<Node>(i);
    const double count = static_cast<double>(replicas.count(node));
    // A node without an edge, which counts where the costs say that it is there, is in one cluster.
    held += count == 0.0 && !graph.costs.empty() ? 1.0 : count;
    if (count > 1.0) found.communication += (count - 1.0) * graph.cost(node);
  }
  const auto mean_of = [&](double sum) { return sum / static_cast<double>(clusters); };
  found.replication = held / static_cast<double>(graph.nodes);
  found.largest_load = *std::max_element(weights.begin(), weights.end());
  found.weight_imbalance = found.largest_load / mean_of(graph.total_weight);
  found.count_imbalance =
      *std::max_element(counts.begin(), counts.end()) / mean_of(static_cast<double>(assigned.size()));
  return found;
}

}  // namespace

Quality quality_of(const Graph& graph, std::span<const Cluster> assigned, std::size_t clusters) {
  if (clusters <= BitReplicas::most) return quality_by<BitReplicas>(graph, assigned, clusters);
  return quality_by<ListReplicas>(graph, assigned, clusters);
}

std::string hash_of(std::span<const Cluster> assigned) {
  return trainyard::lib::Fnv1a()
      .update({reinterpret_cast<const char*>(assigned.data()), assigned.size_bytes()})
      .hex();
}

}  // namespace partition
