// Made-up graphs whose class is in their edges alone: one end of an edge is node n u^(1 + class) of the n of
// its graph, u being uniform, the other is any. So edges of class 0 are spread evenly, and the higher the
// class the more of them meet at few nodes. Features are 1 and noise, and graphs of all classes have as many
// nodes and draws. Where targets are numbers, that is the exponent, uniform from 1 to the classes.
#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <trainyard/random.hpp>

#include "node_graph.hpp"

namespace graph {

using namespace trainyard;

NodeGraph make_graphs(const Source& source) {
  const Synthetic& made = source.synthetic;
  if (source.classes > 0 && source.classes < made.classes)
    throw ConfigError("classes is " + std::to_string(source.classes) +
                      ", less than synthetic.classes, which is " + std::to_string(made.classes) +
                      ": leave it out");
  const auto seed = static_cast<std::uint64_t>(made.seed);
  const RandomStream sizes(seed, "graph/sizes"), ends(seed, "graph/edges"),
      exponents(seed, "graph/exponents");
  const bool numbers = source.targets == Targets::numbers;
  std::vector<double> powers;
  NodeGraph graph;
  graph.offsets = {0};
  for (std::int64_t i = 0; i < made.graphs; ++i) {
    // From half to one and a half of `nodes`.
    const auto more = static_cast<std::int64_t>(
        sizes.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(made.nodes) + 1));
    graph.offsets.push_back(graph.offsets.back() + (made.nodes + 1) / 2 + more);
    powers.push_back(numbers ? 1.0 + exponents.uniform(static_cast<std::uint64_t>(i)) *
                                         static_cast<double>(made.classes - 1)
                             : static_cast<double>(1 + i % made.classes));
    if (!numbers) graph.labels.push_back(i % made.classes);
  }
  graph.csr = make_csr(graph.offsets.back(), source.edges, [&](const auto& visit) {
    for (std::int64_t i = 0; i < made.graphs; ++i) {
      const std::int64_t first = graph.offsets[static_cast<std::size_t>(i)];
      const std::int64_t nodes = graph.offsets[static_cast<std::size_t>(i) + 1] - first;
      const double power = powers[static_cast<std::size_t>(i)];
      for (std::int64_t edge = 0; edge < made.edges; ++edge) {
        const auto number = 4 * static_cast<std::uint64_t>(i * made.edges + edge);
        const auto hub =
            static_cast<std::int64_t>(std::pow(ends.uniform(number), power) * static_cast<double>(nodes));
        const std::uint64_t any = ends.below(number / 2 + 1, static_cast<std::uint64_t>(nodes));
        visit(first + std::min(hub, nodes - 1), first + static_cast<std::int64_t>(any));
      }
    }
  });
  graph.features = at::empty({graph.offsets.back(), made.features}, at::kFloat);
  fill_normal(graph.features, RandomStream(seed, "graph/features"), 1.0, made.noise);
  if (numbers) graph.numbers = at::tensor(powers, at::kFloat).unsqueeze(1);
  graph.splits = split(made.graphs, source.shares);
  return graph;
}

}  // namespace graph
