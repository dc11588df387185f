// WB-Libra: Ma, Xiao, Willke, Ahmed, Nazarian and Bogdan, "A vertex cut based framework for load balancing and parallelism
// optimization in multi-core systems", MLSys 2021. Libra: Xie, Yan, Li and Zhang, "Distributed power-law graph computing",
// NIPS 2014, which has DBH, too. The greedy rule: Gonzalez et al., "PowerGraph", OSDI 2012, section 4.2.1. HDRF: Petroni et
// al., "HDRF: stream-based partitioning for power-law graphs", CIKM 2015, with the epsilon of 1 of its authors' program. EBV: Zhang et al., "An efficient and balanced graph partition
// algorithm for the subgraph-centric programming model on large-scale power-law graphs", ICDCS 2021 (arXiv 2010.09007),
// algorithm 1 with alpha and beta of 1.
#include "stream.hpp"

#include <cmath>
#include <limits>

#include "loads.hpp"
#include "replicas.hpp"

namespace partition {
namespace {

constexpr std::size_t look_ahead = 16;       ///< edges, whose sets are fetched meanwhile
constexpr std::size_t stop_every = 1 << 16;  ///< edges, a tenth of a second at most

/// Calls give(edge) for each edge in order, with the sets of later ones on their way. Returns whether it came to the end.
template <class Replicas, class Give>
bool each_edge(const Graph& graph, const Settings& settings, const Replicas& replicas, const Give& give) {
  const std::size_t edges = graph.edges.size();
  const auto at = [&](std::size_t i) { return settings.order.empty() ? i : settings.order[i]; };
  for (std::size_t i = 0; i < edges; ++i) {
    if (i % stop_every == 0 && settings.stop != nullptr && *settings.stop) return false;
    if (i + look_ahead < edges) {
      const Edge& later = graph.edges[at(i + look_ahead)];
      replicas.prefetch(later.source);
      replicas.prefetch(later.target);
      __builtin_prefetch(&graph.degrees[later.source]);
      __builtin_prefetch(&graph.degrees[later.target]);
    }
    give(at(i));
  }
  return true;
}

/// What the rules of Libra and of PowerGraph have in common: cases by the clusters that hold the ends of an edge.
template <class Replicas>
class Greedy {
 public:
  Greedy(const Graph& graph, Algorithm rule, const Settings& settings)
      : graph_(graph),
        settings_(settings),
        by_weight_(rule != Algorithm::libra && rule != Algorithm::powergraph),
        by_rest_(rule == Algorithm::powergraph || rule == Algorithm::w_powergraph ||
                 rule == Algorithm::wb_powergraph),
        bound_(rule == Algorithm::wb_libra || rule == Algorithm::wb_powergraph
                   ? bound_of(graph, settings)
                   : std::numeric_limits<double>::infinity()),
        replicas_(graph, settings.clusters),
        loads_(settings.clusters) {
    if (by_rest_) rest_ = graph.degrees;
  }

  Assigned run() {
    Assigned made;
    made.clusters.resize(graph_.edges.size());
    const bool whole = each_edge(graph_, settings_, replicas_, [&](std::size_t i) {
      const Edge& edge = graph_.edges[i];
      const Cluster cluster = cluster_for(edge);
      made.clusters[i] = cluster;
      replicas_.add(edge.source, cluster);
      replicas_.add(edge.target, cluster);
      loads_.add(cluster, by_weight_ ? graph_.weight(i) : 1.0);
      if (!by_rest_) return;
      --rest_[edge.source];
      if (edge.target != edge.source) --rest_[edge.target];
    });
    if (!whole) return {};
    made.bytes = made.clusters.size() * sizeof(Cluster) + replicas_.bytes() + loads_.bytes() +
                 (graph_.degrees.size() + rest_.size()) * sizeof(std::uint32_t);
    return made;
  }

 private:
  bool is_full(Cluster cluster) const { return loads_[cluster] >= bound_; }

  Cluster cluster_for(const Edge& edge) {
    const auto [source, target] = edge;
    const bool is_new_source = replicas_.none(source), is_new_target = replicas_.none(target);
    if (is_new_source && is_new_target) return loads_.least();
    if (is_new_source || is_new_target) {
      const Cluster cluster = replicas_.least(is_new_source ? target : source, loads_);
      return is_full(cluster) ? loads_.least() : cluster;
    }
    Cluster cluster = replicas_.least_common(source, target, loads_);
    if (cluster != no_cluster) {
      if (is_full(cluster)) cluster = replicas_.least_of_both(source, target, loads_);
      return is_full(cluster) ? loads_.least() : cluster;
    }
    // The end that is cut is the one of more edges, or the one of fewer edges to come.
    const bool source_first =
        by_rest_ ? rest_[source] >= rest_[target] : graph_.degrees[source] <= graph_.degrees[target];
    cluster = replicas_.least(source_first ? source : target, loads_);
    if (is_full(cluster)) cluster = replicas_.least(source_first ? target : source, loads_);
    return is_full(cluster) ? loads_.least() : cluster;
  }

  const Graph& graph_;
  const Settings& settings_;
  bool by_weight_, by_rest_;
  double bound_;
  Replicas replicas_;
  Loads loads_;
  std::vector<std::uint32_t> rest_;  ///< edges of each node that are still to come
};

template <class Replicas>
Assigned stream_hdrf(const Graph& graph, const Settings& settings) {
  constexpr double epsilon = 1.0;
  Replicas replicas(graph, settings.clusters);
  Loads loads(settings.clusters);
  std::vector<std::uint32_t> seen(graph.degrees.size(), 0);  // degrees so far
  Assigned made;
  made.clusters.resize(graph.edges.size());
  const bool whole = each_edge(graph, settings, replicas, [&](std::size_t i) {
    const auto [source, target] = graph.edges[i];
    ++seen[source];
    if (target != source) ++seen[target];
    const double both = static_cast<double>(seen[source]) + static_cast<double>(seen[target]);
    const double of_source = 2.0 - static_cast<double>(seen[source]) / both;
    const double of_target = 2.0 - static_cast<double>(seen[target]) / both;
    Cluster best = loads.least();  // of those that hold neither end it has the best score
    const double scale = settings.hdrf_lambda / (epsilon + loads.most() - loads[best]);
    double most = scale * (loads.most() - loads[best]);
    replicas.each_of_both(source, target, [&](Cluster cluster, bool holds_source, bool holds_target) {
      const double found = (holds_source ? of_source : 0.0) + (holds_target ? of_target : 0.0) +
                           scale * (loads.most() - loads[cluster]);
      if (found < most || (found == most && cluster >= best)) return;
      most = found;
      best = cluster;
    });
    made.clusters[i] = best;
    replicas.add(source, best);
    replicas.add(target, best);
    loads.add(best, 1.0);
  });
  if (!whole) return {};
  made.bytes = made.clusters.size() * sizeof(Cluster) + replicas.bytes() + loads.bytes() +
               (graph.degrees.size() + seen.size()) * sizeof(std::uint32_t);
  return made;
}

/// Each edge goes where (ends that are not there) + (edges there) / (E / p) + (nodes there) / (V / p) is least. All is multiplied by
/// E V, so that the numbers are whole.
template <class Replicas>
Assigned stream_ebv(const Graph& graph, const Settings& settings) {
  const auto edges = static_cast<double>(graph.edges.size()), nodes = static_cast<double>(graph.nodes);
  const double missing = edges * nodes, share = static_cast<double>(settings.clusters);
  Replicas replicas(graph, settings.clusters);
  Loads loads(settings.clusters);
  Assigned made;
  made.clusters.resize(graph.edges.size());
  const bool whole = each_edge(graph, settings, replicas, [&](std::size_t i) {
    const auto [source, target] = graph.edges[i];
    Cluster best = loads.least();  // of those that hold neither end it has the least
    double least = 2.0 * missing + share * loads[best];
    double more = source == target ? edges : 2.0 * edges;  // for nodes that are new where it goes
    replicas.each_of_both(source, target, [&](Cluster cluster, bool holds_source, bool holds_target) {
      const double found = (holds_source && holds_target ? 0.0 : missing) + share * loads[cluster];
      if (found > least || (found == least && cluster > best)) return;
      least = found;
      best = cluster;
      more = holds_source && holds_target ? 0.0 : edges;
    });
    made.clusters[i] = best;
    replicas.add(source, best);
    replicas.add(target, best);
    loads.add(best, nodes + more);
  });
  if (!whole) return {};
  made.bytes = made.clusters.size() * sizeof(Cluster) + replicas.bytes() + loads.bytes() +
               graph.degrees.size() * sizeof(std::uint32_t);
  return made;
}

/// A number below `clusters` for a key (the finaliser of splitmix64).
Cluster hashed(std::uint64_t key, std::uint64_t seed, std::size_t clusters) {
  std::uint64_t mixed = key + (seed + 1) * 0x9e3779b97f4a7c15;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  mixed ^= mixed >> 31;
  return static_cast<Cluster>((mixed >> 32) * clusters >> 32);
}

Assigned stream_hashed(const Graph& graph, Algorithm rule, const Settings& settings) {
  Assigned made;
  made.clusters.resize(graph.edges.size());
  for (std::size_t i = 0; i < graph.edges.size(); ++i) {
    if (i % stop_every == 0 && settings.stop != nullptr && *settings.stop) return {};
    const auto [source, target] = graph.edges[i];
    const Node lesser = graph.degrees[source] <= graph.degrees[target] ? source : target;
    made.clusters[i] = hashed(rule == Algorithm::dbh ? lesser : i, settings.seed, settings.clusters);
  }
  made.bytes = made.clusters.size() * sizeof(Cluster) +
               (rule == Algorithm::dbh ? graph.degrees.size() * sizeof(std::uint32_t) : 0);
  return made;
}

template <class Replicas>
Assigned stream_by(const Graph& graph, Algorithm rule, const Settings& settings) {
  if (rule == Algorithm::hdrf) return stream_hdrf<Replicas>(graph, settings);
  if (rule == Algorithm::ebv) return stream_ebv<Replicas>(graph, settings);
  return Greedy<Replicas>(graph, rule, settings).run();
}

}  // namespace

double bound_of(const Graph& graph, const Settings& settings) {
  return std::max(1.0, settings.lambda) * graph.total_weight / static_cast<double>(settings.clusters);
}

Assigned stream(const Graph& graph, Algorithm rule, const Settings& settings) {
  if (rule == Algorithm::dbh || rule == Algorithm::random) return stream_hashed(graph, rule, settings);
  if (settings.clusters <= BitReplicas::most) return stream_by<BitReplicas>(graph, rule, settings);
  return stream_by<ListReplicas>(graph, rule, settings);
}

}  // namespace partition
