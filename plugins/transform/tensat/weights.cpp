#include "weights.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

namespace tensat {

using trainyard::Graph;
using trainyard::GraphValue;
using trainyard::Node;
using trainyard::ValueId;

namespace {

/// Calls `place(tensors)` for the parameters of each node that joins some.
template <class Place>
std::size_t for_joined(const Graph& graph, const Place& place) {
  std::set<ValueId> placed;
  std::size_t count = 0;
  for (const Node& node : graph.nodes) {
    if (node.op != "Concat" || node.integer("axis", 0) != 0) continue;
    std::set<ValueId> own;
    const bool fits = std::ranges::all_of(node.inputs, [&](ValueId id) {
      const GraphValue& value = graph.values[static_cast<std::size_t>(id)];
      return value.trainable && !placed.contains(id) && own.insert(id).second;
    });
    if (!fits) continue;
    placed.merge(own);
    count += node.inputs.size();
    place(node.inputs);
  }
  return count;
}

std::vector<at::Tensor> behind_each_other(const std::vector<at::Tensor>& tensors) {
  const c10::NoGradGuard guard;
  const at::Tensor whole = at::cat(tensors, 0);
  std::vector<at::Tensor> made;
  std::int64_t begin = 0;
  for (const at::Tensor& each : tensors) {
    made.push_back(whole.narrow(0, begin, each.size(0)).variable_data());
    begin += each.size(0);
  }
  return made;
}

std::vector<at::Tensor> tensors_of(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<at::Tensor> all;
  for (const ValueId id : ids) all.push_back(graph.values[static_cast<std::size_t>(id)].initializer);
  return all;
}

}  // namespace

std::size_t lay_behind_each_other(Graph& graph) {
  return for_joined(graph, [&](const std::vector<ValueId>& ids) {
    const std::vector<at::Tensor> made = behind_each_other(tensors_of(graph, ids));
    for (std::size_t i = 0; i < ids.size(); ++i)
      graph.values[static_cast<std::size_t>(ids[i])].initializer = made[i];
  });
}

std::size_t lay_behind_each_other(trainyard::Network& network) {
  const Graph* const graph = network.graph();
  if (graph == nullptr) return 0;
  return for_joined(*graph, [&](const std::vector<ValueId>& ids) {
    const std::vector<at::Tensor> tensors = tensors_of(*graph, ids), made = behind_each_other(tensors);
    for (std::size_t i = 0; i < ids.size(); ++i) tensors[i].set_data(made[i]);
  });
}

}  // namespace tensat
