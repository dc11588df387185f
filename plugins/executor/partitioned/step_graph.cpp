#include "step_graph.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include <trainyard/error.hpp>

namespace partitioned {

using namespace trainyard;

partition::Graph graph_of(std::vector<partition::Edge> edges, std::vector<double> weights,
                          std::vector<double> costs) {
  struct Owner {
    std::vector<partition::Edge> edges;
    std::vector<double> weights;
  };
  const auto owner = std::make_shared<Owner>(Owner{std::move(edges), std::move(weights)});
  partition::Graph graph;
  graph.edges = owner->edges;
  graph.weights = owner->weights;
  graph.costs = std::move(costs);
  graph.owner = owner;
  partition::count(graph, graph.costs.size());
  return graph;
}

Dependences::Dependences(const Graph& graph)
    : producers(graph.nodes.size()),
      maker(graph.values.size(), -1),
      tracked(graph.nodes.size(), false),
      output(0) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    for (const ValueId id : node.inputs) {
      if (id == no_value) continue;
      const auto value = static_cast<std::size_t>(id);
      if (graph.values[value].trainable) tracked[i] = true;
      if (maker[value] < 0) continue;
      const auto from = static_cast<std::size_t>(maker[value]);
      producers[i].push_back(from);
      if (tracked[from]) tracked[i] = true;
    }
    std::ranges::sort(producers[i]);
    producers[i].erase(std::ranges::unique(producers[i]).begin(), producers[i].end());
    for (const ValueId id : node.outputs)
      if (id != no_value) maker[static_cast<std::size_t>(id)] = static_cast<int>(i);
  }
  const int last = maker[static_cast<std::size_t>(graph.outputs.front())];
  if (last < 0) throw ConfigError("the network's output is an input of it: there is nothing to cut");
  output = static_cast<std::size_t>(last);
}

StepGraph::StepGraph(const Graph& graph, const Times& times, std::int64_t samples, Weights weights)
    : dependences_(graph), nodes_(graph.nodes.size()) {
  add_passes(times);
  add_folded(graph, times, samples, weights);
}

void StepGraph::add_passes(const Times& times) {
  std::vector<partition::Edge> edges;
  const auto edge = [&](std::size_t from, std::size_t to) {
    edges.push_back({static_cast<partition::Node>(from), static_cast<partition::Node>(to)});
  };
  for (std::size_t i = 0; i < nodes_; ++i)
    for (const std::size_t from : dependences_.producers[i]) edge(from, i);
  edge(dependences_.output, loss());
  edge(loss(), backward_of(dependences_.output));
  for (std::size_t i = 0; i < nodes_; ++i) {
    edge(i, backward_of(i));
    for (const std::size_t from : dependences_.producers[i]) edge(backward_of(i), backward_of(from));
  }
  std::vector<double> costs = times.forward;
  costs.push_back(times.loss);
  for (std::size_t i = 0; i < nodes_; ++i) costs.push_back(dependences_.tracked[i] ? times.backward[i] : 0.0);
  passes_ = graph_of(std::move(edges), {}, std::move(costs));
}

void StepGraph::add_folded(const Graph& graph, const Times& times, std::int64_t samples, Weights weights) {
  std::vector<double> costs(nodes_ + 1 + graph.inputs.size(), 0.0);
  for (std::size_t i = 0; i < nodes_; ++i)
    costs[i] = times.forward[i] + (dependences_.tracked[i] ? times.backward[i] : 0.0);
  costs[nodes_] = times.loss;
  std::vector<partition::Edge> edges;
  std::vector<double> bytes, kept;
  const auto edge = [&](std::size_t from, std::size_t to, ValueId value) {
    edges.push_back({static_cast<partition::Node>(from), static_cast<partition::Node>(to)});
    bytes.push_back(bytes_of(graph.values[static_cast<std::size_t>(value)], samples));
  };
  for (std::size_t i = 0; i < nodes_; ++i) {
    std::vector<ValueId> read;
    for (const ValueId id : graph.nodes[i].inputs) {
      if (id == no_value || std::ranges::count(read, id) > 0) continue;
      read.push_back(id);
      const auto input = std::ranges::find(graph.inputs, id);
      const int maker = dependences_.maker[static_cast<std::size_t>(id)];
      if (maker >= 0)
        edge(static_cast<std::size_t>(maker), i, id);
      else if (input != graph.inputs.end())
        edge(nodes_ + 1 + static_cast<std::size_t>(input - graph.inputs.begin()), i, id);
    }
  }
  edge(dependences_.output, nodes_, graph.outputs.front());
  if (weights == Weights::bytes) kept = std::move(bytes);
  if (weights == Weights::time) {
    std::vector<std::size_t> in(costs.size(), 0);
    for (const partition::Edge& each : edges) ++in[each.target];
    for (const partition::Edge& each : edges)
      kept.push_back(costs[each.target] / static_cast<double>(in[each.target]));
  }
  folded_ = graph_of(std::move(edges), std::move(kept), std::move(costs));
}

}  // namespace partitioned
