#include "graph.hpp"

#include <algorithm>
#include <numeric>

#include <trainyard/random.hpp>

namespace partition {
namespace {

std::vector<std::uint32_t> shuffled(std::size_t count, std::uint64_t seed) {
  std::vector<std::uint32_t> places(count);
  std::iota(places.begin(), places.end(), 0U);
  const trainyard::RandomStream random(seed, "partition/order");
  for (std::size_t i = count; i > 1; --i) std::swap(places[i - 1], places[random.below(i, i)]);
  return places;
}

/// The edges of each node, whatever their direction: those of node i from begin[i] on.
struct Incidence {
  std::vector<std::size_t> begin;
  std::vector<std::uint32_t> edges;
};

Incidence incidence_of(const Graph& graph) {
  Incidence all;
  all.begin.assign(graph.degrees.size() + 1, 0);
  for (std::size_t i = 0; i < graph.degrees.size(); ++i) all.begin[i + 1] = all.begin[i] + graph.degrees[i];
  all.edges.resize(all.begin.back());
  std::vector<std::size_t> next(all.begin.begin(), all.begin.end() - 1);
  for (std::size_t i = 0; i < graph.edges.size(); ++i) {
    const auto [source, target] = graph.edges[i];
    all.edges[next[source]++] = static_cast<std::uint32_t>(i);
    if (source != target) all.edges[next[target]++] = static_cast<std::uint32_t>(i);
  }
  return all;
}

std::vector<std::uint32_t> breadth_first(const Graph& graph) {
  const Incidence all = incidence_of(graph);
  std::vector<std::uint32_t> places;
  places.reserve(graph.edges.size());
  std::vector<bool> is_reached(graph.degrees.size()), is_taken(graph.edges.size());
  std::vector<Node> queue;
  for (std::size_t root = 0; root < graph.degrees.size(); ++root) {
    if (is_reached[root] || graph.degrees[root] == 0) continue;
    is_reached[root] = true;
    queue.assign(1, static_cast<Node>(root));
    for (std::size_t head = 0; head < queue.size(); ++head) {
      const Node node = queue[head];
      for (std::size_t k = all.begin[node]; k < all.begin[node + 1]; ++k) {
        const std::uint32_t edge = all.edges[k];
        if (!is_taken[edge]) places.push_back(edge);
        is_taken[edge] = true;
        const Node other =
            graph.edges[edge].source == node ? graph.edges[edge].target : graph.edges[edge].source;
        if (!is_reached[other]) queue.push_back(other);
        is_reached[other] = true;
      }
    }
  }
  return places;
}

std::vector<std::uint32_t> by_degrees(const Graph& graph) {
  std::vector<std::uint32_t> places(graph.edges.size());
  std::iota(places.begin(), places.end(), 0U);
  const auto sum = [&](std::uint32_t i) {
    return std::uint64_t{graph.degrees[graph.edges[i].source]} + graph.degrees[graph.edges[i].target];
  };
  std::ranges::stable_sort(places, [&](std::uint32_t a, std::uint32_t b) { return sum(a) < sum(b); });
  return places;
}

}  // namespace

void count(Graph& graph, std::size_t ids) {
  graph.degrees.assign(graph.costs.empty() ? ids : graph.costs.size(), 0);
  graph.total_weight = graph.largest_weight = 0.0;
  for (std::size_t i = 0; i < graph.edges.size(); ++i) {
    const auto [source, target] = graph.edges[i];
    ++graph.degrees[source];
    if (target != source) ++graph.degrees[target];
    graph.total_weight += graph.weight(i);
    graph.largest_weight = std::max(graph.largest_weight, graph.weight(i));
  }
  graph.nodes = graph.degrees.size();
  if (graph.costs.empty())
    graph.nodes -= static_cast<std::size_t>(std::count(graph.degrees.begin(), graph.degrees.end(), 0U));
}

std::vector<std::uint32_t> order_of(const Graph& graph, Order order, std::uint64_t seed) {
  switch (order) {
    case Order::given: return {};
    case Order::shuffled: return shuffled(graph.edges.size(), seed);
    case Order::bfs: return breadth_first(graph);
    case Order::degrees: return by_degrees(graph);
  }
  return {};
}

}  // namespace partition
