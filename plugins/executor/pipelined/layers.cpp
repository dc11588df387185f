#include "layers.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include <trainyard/error.hpp>

namespace pipelined {

using namespace trainyard;
namespace {

bool begins_layer(const Graph& graph, const Node& node) {
  return std::ranges::any_of(node.inputs, [&](ValueId id) {
    if (id == no_value) return false;
    const GraphValue& value = graph.values[static_cast<std::size_t>(id)];
    return value.trainable && value.initializer.dim() >= 2;
  });
}

void check_not_shared(const Graph& graph, std::span<const int> stage_of_node) {
  std::map<ValueId, int> stage_of_parameter;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    for (const ValueId id : graph.nodes[i].inputs) {
      if (id == no_value || !graph.values[static_cast<std::size_t>(id)].trainable) continue;
      const int first = stage_of_parameter.emplace(id, stage_of_node[i]).first->second;
      if (first != stage_of_node[i])
        throw ConfigError("the parameter \"" + graph.values[static_cast<std::size_t>(id)].name +
                          "\" is read in stages " + std::to_string(first) + " and " +
                          std::to_string(stage_of_node[i]) +
                          ", which update their weights at different times: take a model without shared "
                          "weights, or executor.stages = 1");
    }
}

}  // namespace

std::vector<int> balanced(std::span<const double> costs, std::int64_t parts) {
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

std::vector<int> stage_of_nodes(const Graph& graph, std::int64_t stages) {
  std::vector<int> layer_of_node;
  std::vector<double> costs;
  bool begun = false;
  for (const Node& node : graph.nodes) {
    const bool begins = begins_layer(graph, node);
    if (costs.empty() || (begun && begins)) costs.push_back(0.0);
    begun = begun || begins;
    const NodeCost node_cost = cost(graph, node);
    costs.back() += static_cast<double>(node_cost.multiply_adds + node_cost.parameters);
    layer_of_node.push_back(static_cast<int>(costs.size()) - 1);
  }
  if (stages > static_cast<std::int64_t>(costs.size()))
    throw ConfigError("executor.stages is " + std::to_string(stages) + ", and the model has " +
                      std::to_string(costs.size()) + " layers: give as many or fewer, or 0 for all of them");
  std::vector<int> stage_of_node = layer_of_node;
  if (stages > 0) {
    const std::vector<int> stage_of_layer = balanced(costs, stages);
    for (int& stage : stage_of_node) stage = stage_of_layer[static_cast<std::size_t>(stage)];
  }
  check_not_shared(graph, stage_of_node);
  return stage_of_node;
}

}  // namespace pipelined
