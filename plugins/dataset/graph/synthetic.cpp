#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <trainyard/random.hpp>

#include "node_graph.hpp"

namespace graph {
namespace {

using namespace trainyard;

/// Edges by number, so that none is kept: the same numbers give the same edge.
class Edges {
 public:
  explicit Edges(const Synthetic& made)
      : made_(made),
        random_(static_cast<std::uint64_t>(made.seed), "graph/edges"),
        low_(std::pow(10.0, 0.4)),
        high_(std::pow(static_cast<double>(made.nodes) + 10.0, 0.4)) {
    while (std::gcd(stride_, made.nodes) != 1) ++stride_;
  }

  template <class Visit>
  void each(const Visit& visit) const {
    const auto nodes = static_cast<std::uint64_t>(made_.nodes);
    for (std::int64_t edge = 0; edge < made_.edges; ++edge) {
      const auto first = 4 * static_cast<std::uint64_t>(edge);
      const std::int64_t from = hub(random_.uniform(first));
      auto to = static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(2 * edge + 1), nodes));
      if (made_.homophily > 0.0 && random_.uniform(first + 1) < made_.homophily)
        to = of_class(to, from % made_.classes);
      visit(from, to);
    }
  }

 private:
  /// Inverse of the distribution, in the limit of many nodes: 1 - 0.6 = 0.4, and x^2.5 is its inverse. Ranks
  /// are spread over the nodes.
  std::int64_t hub(double uniform) const {
    const double x = low_ + uniform * (high_ - low_);
    const auto rank = static_cast<std::int64_t>(x * x * std::sqrt(x) - 10.0);
    __extension__ using Wide = __int128;
    return static_cast<std::int64_t>(Wide{std::clamp<std::int64_t>(rank, 0, made_.nodes - 1)} * stride_ %
                                     made_.nodes);
  }
  /// A node of that class near `node`; nodes have the classes in turn.
  std::int64_t of_class(std::int64_t node, std::int64_t label) const {
    const std::int64_t same = node - node % made_.classes + label;
    return same < made_.nodes ? same : label;
  }

  const Synthetic& made_;
  RandomStream random_;
  double low_, high_;
  std::int64_t stride_ = 514229;
};

/// The target of an edge, as it was drawn: whether its ends are of one class; in numbers, the mean of their
/// classes as a share of all.
void tell_edges(const Source& source, const Edges& edges, NodeGraph& graph) {
  std::vector<float> numbers;
  graph.labels.clear();
  edges.each([&](std::int64_t from, std::int64_t to) {
    const std::int64_t one = from % source.synthetic.classes, other = to % source.synthetic.classes;
    graph.ends.insert(graph.ends.end(), {from, to});
    if (source.targets == Targets::numbers)
      numbers.push_back(static_cast<float>(one + other) / static_cast<float>(2 * source.synthetic.classes));
    else
      graph.labels.push_back(one == other ? 1 : 0);
  });
  if (source.targets == Targets::numbers) graph.numbers = at::tensor(numbers).unsqueeze(1);
  graph.splits = split(source.synthetic.edges, source.shares);
}

}  // namespace

void Synthetic::describe(Fields<Synthetic>& m) {
  m.option("graphs", &Synthetic::graphs,
           "where samples are graphs; their nodes and edges are then those of each")
      .range(3, 1 << 24);
  m.option("nodes", &Synthetic::nodes, "three in five are for training, one for val, one for test")
      .range(5, 4e9);
  m.option("edges", &Synthetic::edges, "drawn; those drawn twice count once where undirected = true")
      .range(0, 1e10);
  m.option("features", &Synthetic::features, "of a node").range(1, 1 << 20);
  m.option("classes", &Synthetic::classes, "of the nodes; at most as many as those").range(2, 1 << 20);
  m.option("homophily", &Synthetic::homophily, "probability that an edge is made to stay within a class")
      .range(0.0, 1.0);
  m.option("noise", &Synthetic::noise, "standard deviation of a feature around the centre of the class")
      .range(0.0, 100.0);
  m.option("seed", &Synthetic::seed, "of the graph, whatever the seed of the run").min(0);
}

NodeGraph make_synthetic(const Source& source) {
  const Synthetic& made = source.synthetic;
  if (made.classes > made.nodes)
    throw ConfigError("synthetic.classes is " + std::to_string(made.classes) + ", more than the " +
                      std::to_string(made.nodes) + " nodes");
  if (source.classes > 0 && source.classes < (source.edges_told ? 2 : made.classes))
    throw ConfigError("classes is " + std::to_string(source.classes) +
                      ", less than synthetic.classes, which is " + std::to_string(made.classes) +
                      ": leave it out");
  const auto seed = static_cast<std::uint64_t>(made.seed);
  NodeGraph graph;
  const Edges edges(made);
  graph.csr = make_csr(made.nodes, source.edges, [&](const auto& visit) { edges.each(visit); });

  at::Tensor centres = at::empty({made.classes, made.features}, at::kFloat);
  fill_normal(centres, RandomStream(seed, "graph/centres"), 0.0, 1.0);
  graph.features = at::empty({made.nodes, made.features}, at::kFloat);
  fill_normal(graph.features, RandomStream(seed, "graph/features"), 0.0, made.noise);
  float* row = graph.features.mutable_data_ptr<float>();
  const RandomStream splits(seed, "graph/splits");
  for (std::int64_t node = 0; node < made.nodes; ++node, row += made.features) {
    const std::int64_t label = node % made.classes;
    const float* centre = centres.const_data_ptr<float>() + label * made.features;
    std::transform(row, row + made.features, centre, row, std::plus<>());
    graph.labels.push_back(label);
    const std::uint64_t fifth = splits.below(static_cast<std::uint64_t>(node), 5);
    graph.splits[fifth < 3 ? "train" : fifth == 3 ? "val" : "test"].push_back(node);
  }
  if (source.edges_told) tell_edges(source, edges, graph);
  return graph;
}

}  // namespace graph
