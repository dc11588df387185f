#include "layers.hpp"

#include <map>
#include <string>

#include <trainyard/error.hpp>

#include "../layers.hpp"

namespace pipelined {

using namespace trainyard;
namespace {

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

std::vector<int> stage_of_nodes(const Graph& graph, std::int64_t stages) {
  const auto [layer_of_node, costs] = executors::layers_of(graph);
  if (stages > static_cast<std::int64_t>(costs.size()))
    throw ConfigError("executor.stages is " + std::to_string(stages) + ", and the model has " +
                      std::to_string(costs.size()) + " layers: give as many or fewer, or 0 for all of them");
  std::vector<int> stage_of_node = layer_of_node;
  if (stages > 0) {
    const std::vector<int> stage_of_layer = executors::balanced(costs, stages);
    for (int& stage : stage_of_node) stage = stage_of_layer[static_cast<std::size_t>(stage)];
  }
  check_not_shared(graph, stage_of_node);
  return stage_of_node;
}

}  // namespace pipelined
