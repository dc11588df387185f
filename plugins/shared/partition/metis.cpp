#include "metis.hpp"

#include <metis.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include <trainyard/error.hpp>

#include "lib/apart.hpp"

namespace partition {
namespace {

namespace lib = trainyard::lib;
using trainyard::DataError;

/// What METIS takes: neighbours of each node, each once, with whole weights.
struct Symmetric {
  std::vector<idx_t> begin, neighbours, edge_weights, node_weights;
};

/// Weights as whole numbers, of which METIS's sums have 31 bits at most.
class Whole {
 public:
  explicit Whole(const Graph& graph) {
    const double mean = graph.total_weight / static_cast<double>(graph.edges.size());
    scale_ = std::min(1000.0 / mean, static_cast<double>(1 << 28) / graph.total_weight);
  }
  idx_t operator()(double weight) const {
    return std::max<idx_t>(1, static_cast<idx_t>(std::lround(weight * scale_)));
  }

 private:
  double scale_;
};

Symmetric symmetric_of(const Graph& graph, bool by_weight) {
  struct End {
    Node to;
    double weight;
  };
  const std::size_t nodes = graph.degrees.size();
  std::vector<std::size_t> begin(nodes + 1, 0);
  for (std::size_t i = 0; i < nodes; ++i) begin[i + 1] = begin[i] + graph.degrees[i];
  std::vector<End> ends(begin.back());
  std::vector<std::size_t> next(begin.begin(), begin.end() - 1);
  for (std::size_t i = 0; i < graph.edges.size(); ++i) {
    const auto [source, target] = graph.edges[i];
    ends[next[source]++] = {target, graph.weight(i)};
    if (source != target) ends[next[target]++] = {source, graph.weight(i)};
  }
  const Whole whole(graph);
  Symmetric made;
  made.begin.push_back(0);
  for (std::size_t i = 0; i < nodes; ++i) {
    const auto first = ends.begin() + static_cast<std::ptrdiff_t>(begin[i]);
    const auto last = ends.begin() + static_cast<std::ptrdiff_t>(begin[i + 1]);
    std::sort(first, last, [](const End& a, const End& b) { return a.to < b.to; });
    double sum = 0.0;
    for (auto end = first; end != last;) {
      double weight = 0.0;
      idx_t count = 0;
      const Node to = end->to;
      for (; end != last && end->to == to; ++end, ++count) weight += end->weight;
      sum += weight;
      if (to == i) continue;
      made.neighbours.push_back(static_cast<idx_t>(to));
      made.edge_weights.push_back(by_weight ? whole(weight) : count);
    }
    made.begin.push_back(static_cast<idx_t>(made.neighbours.size()));
    made.node_weights.push_back(whole(sum / 2.0));
  }
  return made;
}

/// Runs in a copy of the process. Returns the cluster of each node.
std::string compute(Symmetric& graph, const Settings& settings) {
  idx_t options[METIS_NOPTIONS];
  METIS_SetDefaultOptions(options);
  options[METIS_OPTION_SEED] = static_cast<idx_t>(settings.seed % 1'000'000'007);
  options[METIS_OPTION_NUMBERING] = 0;
  idx_t nodes = static_cast<idx_t>(graph.begin.size() - 1), constraints = 1, cut = 0;
  idx_t clusters = static_cast<idx_t>(settings.clusters);
  std::vector<idx_t> parts(graph.begin.size() - 1);
  const int status = METIS_PartGraphKway(&nodes, &constraints, graph.begin.data(), graph.neighbours.data(),
                                         graph.node_weights.data(), nullptr, graph.edge_weights.data(),
                                         &clusters, nullptr, nullptr, options, &cut, parts.data());
  if (status != METIS_OK) throw std::runtime_error("METIS failed");
  return {reinterpret_cast<const char*>(parts.data()), parts.size() * sizeof(idx_t)};
}

/// Throws for an end that is none that was asked for.
void check(const lib::Apart& apart) {
  using End = lib::Apart::End;
  if (apart.end == End::no_process)
    throw DataError(std::string("metis: no process: ") + std::strerror(apart.number));
  if (apart.end == End::died)
    throw DataError("metis was ended by signal " + std::to_string(apart.number) +
                    ": leave it out, or give it more memory");
  if (apart.end == End::failed) throw DataError("metis could not cut this graph: leave it out");
}

/// An edge goes to the cluster of its end of fewer edges, so that the other end is the one with copies.
std::vector<Cluster> edges_of(const Graph& graph, std::span<const Cluster> masters) {
  std::vector<Cluster> edges(graph.edges.size());
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const auto [source, target] = graph.edges[i];
    edges[i] = masters[graph.degrees[source] <= graph.degrees[target] ? source : target];
  }
  return edges;
}

}  // namespace

NodesCut cut_by_metis(const Graph& graph, bool by_weight, const Settings& settings) {
  if (graph.edges.size() > std::size_t{1} << 30 || graph.degrees.size() >= std::size_t{1} << 31)
    throw DataError("the graph is too large for metis, which counts in 32 bits: leave it out");
  Symmetric symmetric = symmetric_of(graph, by_weight);
  const std::size_t nodes = graph.degrees.size();
  const lib::Apart apart = lib::computed_apart([&] { return compute(symmetric, settings); },
                                               std::numeric_limits<double>::infinity(),
                                               [&] { return settings.stop != nullptr && *settings.stop; });
  if (apart.end == lib::Apart::End::stopped) return {};
  check(apart);
  std::vector<idx_t> parts(nodes);
  std::memcpy(parts.data(), apart.bytes.data(), apart.bytes.size());
  NodesCut made;
  made.masters.assign(parts.begin(), parts.end());
  made.edges.clusters = edges_of(graph, made.masters);
  made.edges.bytes = made.edges.clusters.size() * sizeof(Cluster) +
                     nodes * (sizeof(Cluster) + sizeof(idx_t)) +
                     (symmetric.begin.size() + symmetric.neighbours.size() + symmetric.edge_weights.size() +
                      symmetric.node_weights.size()) *
                         sizeof(idx_t);
  return made;
}

}  // namespace partition
