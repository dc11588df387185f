// What executors that spread a model over threads or ranks have in common: layers of a graph, and runs of them that cost
// about the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <trainyard/graph/graph.hpp>

namespace executors {

/// A layer begins at each node with a trainable matrix or kernel, and has those after it that have none; those ahead of
/// the first are of the first.
struct Layers {
  std::vector<int> of_node;
  std::vector<double> costs;  ///< of each layer: multiply-adds and parameters
};

inline Layers layers_of(const trainyard::Graph& graph) {
  const auto begins_layer = [&](const trainyard::Node& node) {
    return std::ranges::any_of(node.inputs, [&](trainyard::ValueId id) {
      if (id == trainyard::no_value) return false;
      const trainyard::GraphValue& value = graph.values[static_cast<std::size_t>(id)];
      return value.trainable && value.initializer.dim() >= 2;
    });
  };
  Layers layers;
  bool begun = false;
  for (const trainyard::Node& node : graph.nodes) {
    const bool begins = begins_layer(node);
    if (layers.costs.empty() || (begun && begins)) layers.costs.push_back(0.0);
    begun = begun || begins;
    const trainyard::NodeCost cost = trainyard::cost(graph, node);
    layers.costs.back() += static_cast<double>(cost.multiply_adds + cost.parameters);
    layers.of_node.push_back(static_cast<int>(layers.costs.size()) - 1);
  }
  return layers;
}

/// Splits items into at most `parts` runs one behind the other, none of them empty, whose largest sum is as small
/// as can be; gives the run of each item.
inline std::vector<int> balanced(std::span<const double> costs, std::int64_t parts) {
  const std::size_t n = costs.size(), k = std::min(static_cast<std::size_t>(parts), n);
  std::vector<double> sums(n + 1, 0.0);
  std::partial_sum(costs.begin(), costs.end(), sums.begin() + 1);
  // best[p][i]: the largest sum where the first i items are in p runs; from[p][i]: where the last of these begins.
  std::vector<std::vector<double>> best(k + 1,
                                        std::vector<double>(n + 1, std::numeric_limits<double>::max()));
  std::vector<std::vector<std::size_t>> from(k + 1, std::vector<std::size_t>(n + 1, 0));
  best[0][0] = 0.0;
  for (std::size_t p = 1; p <= k; ++p)
    for (std::size_t i = p; i <= n; ++i)
      for (std::size_t begin = p - 1; begin < i; ++begin) {
        const double largest = std::max(best[p - 1][begin], sums[i] - sums[begin]);
        if (largest < best[p][i]) best[p][i] = largest, from[p][i] = begin;
      }
  std::vector<int> part_of_item(n);
  for (std::size_t p = k, end = n; p > 0; end = from[p][end], --p)
    std::fill(part_of_item.begin() + static_cast<std::ptrdiff_t>(from[p][end]),
              part_of_item.begin() + static_cast<std::ptrdiff_t>(end), static_cast<int>(p) - 1);
  return part_of_item;
}

}  // namespace executors
