#include "made_up.hpp"

#include <bit>
#include <cmath>
#include <numbers>
#include <string>

#include <trainyard/error.hpp>
#include <trainyard/random.hpp>

namespace partition {
namespace {

using trainyard::ConfigError;
using trainyard::RandomStream;

constexpr std::size_t at_once = 4096;  ///< edges of a task, of which each has its own part of a stream

struct Made {
  std::vector<Edge> edges;
  std::vector<double> weights;
};

std::size_t parts_of(std::size_t count) {
  return (count + at_once - 1) / at_once;
}

/// Mixes the numbers of 2^bits nodes, one to one.
Node mixed(Node node, int bits) {
  const Node mask = bits == 32 ? ~Node{0} : (Node{1} << bits) - 1;
  for (int round = 0; round < 2; ++round) {
    node = (node * 0x9e3779b1U) & mask;
    node ^= node >> (bits / 2 + 1);
  }
  return node;
}

std::vector<Edge> make_rmat(std::size_t nodes, std::size_t degree, std::uint64_t seed, const RunTasks& run) {
  const int levels = std::countr_zero(nodes);
  // A level takes half a word; thresholds of 16 bits.
  constexpr std::uint32_t first = 37356, second = 49807, third = 62259;
  const std::size_t words = (static_cast<std::size_t>(levels) + 1) / 2;
  std::vector<Edge> edges(nodes * degree);
  const RandomStream random(seed, "partition/rmat");
  run(parts_of(edges.size()), [&](std::size_t part) {
    std::vector<std::uint32_t> drawn(at_once * words);
    random.fill_words(drawn, part * at_once * words / 4);
    for (std::size_t i = 0; i < at_once && part * at_once + i < edges.size(); ++i) {
      Edge edge{0, 0};
      for (int level = 0; level < levels; ++level) {
        const std::uint32_t word = drawn[i * words + static_cast<std::size_t>(level) / 2];
        const std::uint32_t draw = level % 2 == 0 ? word & 0xffff : word >> 16;
        edge.source = edge.source << 1 | (draw >= second ? 1U : 0U);
        edge.target = edge.target << 1 | (draw >= third || (draw >= first && draw < second) ? 1U : 0U);
      }
      edges[part * at_once + i] = {mixed(edge.source, levels), mixed(edge.target, levels)};
    }
  });
  return edges;
}

std::vector<Edge> make_ba(std::size_t nodes, std::size_t degree, std::uint64_t seed) {
  const RandomStream random(seed, "partition/ba");
  std::vector<Edge> edges;
  edges.reserve(nodes * degree);
  std::vector<Node> ends, drawn;  // each node as often as it has edges
  ends.reserve(2 * nodes * degree);
  for (std::size_t i = 0; i < degree; ++i) ends.push_back(static_cast<Node>(i));
  std::uint64_t number = 0;
  for (std::size_t i = degree; i < nodes; ++i) {
    drawn.clear();
    for (std::size_t k = 0; k < degree; ++k) {
      const Node target = ends[random.below(number++, ends.size())];
      if (std::find(drawn.begin(), drawn.end(), target) == drawn.end()) drawn.push_back(target);
    }
    for (const Node target : drawn) {
      edges.push_back({static_cast<Node>(i), target});
      ends.push_back(static_cast<Node>(i));
      ends.push_back(target);
    }
  }
  return edges;
}

/// exp of a normal number, by Box and Muller: an even and the odd number behind it are of one pair.
std::vector<double> lognormal(std::size_t count, std::uint64_t seed, const RunTasks& run) {
  std::vector<double> weights(count);
  const RandomStream random(seed, "partition/weights");
  run(parts_of(count), [&](std::size_t part) {
    for (std::size_t i = part * at_once; i < std::min(count, (part + 1) * at_once); i += 2) {
      const double radius = std::sqrt(-2.0 * std::log1p(-random.uniform(i)));
      const double angle = 2.0 * std::numbers::pi * random.uniform(i + 1);
      weights[i] = std::exp(radius * std::cos(angle));
      if (i + 1 < count) weights[i + 1] = std::exp(radius * std::sin(angle));
    }
  });
  return weights;
}

}  // namespace

Graph make_up(MadeUp which, std::size_t nodes, std::size_t degree, std::uint64_t seed, const RunTasks& run) {
  if (which == MadeUp::rmat && !std::has_single_bit(nodes))
    throw ConfigError("made_nodes is " + std::to_string(nodes) + ": a graph of R-MAT has a power of 2, as " +
                      std::to_string(std::bit_floor(nodes)));
  if (which == MadeUp::ba && nodes <= degree)
    throw ConfigError("made_nodes is " + std::to_string(nodes) +
                      ": expected more than made_degree, which is " + std::to_string(degree));
  if (nodes * degree > most_edges)
    throw ConfigError("made_nodes times made_degree is more than " + std::to_string(most_edges) + " edges");
  const auto made = std::make_shared<Made>();
  made->edges = which == MadeUp::ba ? make_ba(nodes, degree, seed) : make_rmat(nodes, degree, seed, run);
  made->weights = lognormal(made->edges.size(), seed, run);
  Graph graph;
  graph.edges = made->edges;
  graph.weights = made->weights;
  graph.owner = made;
  count(graph, nodes);
  return graph;
}

}  // namespace partition
