#include "segments.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace partitioned {

using namespace trainyard;
namespace {

/// Values that are in the network, and not in the batch or of a node.
bool is_initializer(const Graph& graph, ValueId id) {
  return graph.values[static_cast<std::size_t>(id)].initializer.defined();
}

std::vector<std::set<std::size_t>> readers_of_nodes(const Graph& graph, const Dependences& dependences) {
  std::vector<std::set<std::size_t>> readers(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    for (const std::size_t from : dependences.producers[i]) readers[from].insert(i);
  return readers;
}

}  // namespace

std::vector<Segment> segments_of(const Graph& graph, const Dependences& dependences,
                                 const Placement& placement, const std::vector<bool>& apart) {
  const auto readers = readers_of_nodes(graph, dependences);
  std::vector<Segment> segments;
  std::vector<std::size_t> of_node(graph.nodes.size());
  const auto joins = [&](std::size_t i) {
    if (apart[i] || dependences.producers[i].size() != 1) return false;
    const std::size_t from = dependences.producers[i].front();
    const Segment& segment = segments[of_node[from]];
    if (apart[from] || segment.nodes.back() != from || readers[from].size() != 1 ||
        from == dependences.output || segment.forward != placement.forward[i] ||
        segment.backward != placement.backward[i])
      return false;
    for (const ValueId id : graph.nodes[i].inputs) {
      if (id == no_value) continue;
      const bool made = dependences.maker[static_cast<std::size_t>(id)] >= 0;
      if (!made && !is_initializer(graph, id)) return false;  // of the batch
      if (made) continue;
      for (const std::size_t other : segment.nodes)
        if (std::ranges::count(graph.nodes[other].inputs, id) > 0) return false;
    }
    return true;
  };
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (joins(i)) {
      of_node[i] = of_node[dependences.producers[i].front()];
      segments[of_node[i]].nodes.push_back(i);
      continue;
    }
    of_node[i] = segments.size();
    segments.push_back({{i}, placement.forward[i], placement.backward[i]});
  }
  return segments;
}

std::vector<std::pair<std::size_t, std::size_t>> ordered_pairs(const Graph& graph,
                                                               const std::vector<bool>& apart) {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  std::map<ValueId, std::size_t> writer;  // the last so far of each running statistic
  int last = -1;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op == "BatchNormalization")
      for (const ValueId id : graph.nodes[i].inputs) {
        if (id == no_value || !is_initializer(graph, id) ||
            graph.values[static_cast<std::size_t>(id)].trainable)
          continue;
        const auto known = writer.find(id);
        if (known != writer.end()) pairs.emplace_back(known->second, i);
        writer[id] = i;
      }
    if (!apart[i]) continue;
    if (last >= 0) pairs.emplace_back(static_cast<std::size_t>(last), i);
    last = static_cast<int>(i);
  }
  return pairs;
}

partition::Tasks tasks_of(const std::vector<Segment>& segments, const StepGraph& step, const Times& times,
                          const Overheads& overheads) {
  const std::size_t count = segments.size();
  const Dependences& dependences = step.dependences();
  std::vector<std::size_t> of_node(step.nodes());
  std::vector<double> costs(2 * count + 1, 0.0);
  for (std::size_t s = 0; s < count; ++s) {
    costs[s] = overheads.forward;
    for (const std::size_t node : segments[s].nodes) {
      of_node[node] = s;
      costs[s] += times.forward[node];
      if (dependences.tracked[node]) costs[count + 1 + s] += times.backward[node];
    }
    if (costs[count + 1 + s] > 0.0) costs[count + 1 + s] += overheads.backward;
  }
  costs[count] = times.loss;
  std::set<std::pair<std::size_t, std::size_t>> edges;
  for (std::size_t node = 0; node < step.nodes(); ++node)
    for (const std::size_t from : dependences.producers[node])
      if (of_node[from] != of_node[node]) {
        edges.emplace(of_node[from], of_node[node]);
        edges.emplace(count + 1 + of_node[node], count + 1 + of_node[from]);
      }
  for (std::size_t s = 0; s < count; ++s) {
    edges.emplace(s, count);
    edges.emplace(count, count + 1 + s);
  }
  std::vector<partition::Edge> all;
  for (const auto& [from, to] : edges)
    all.push_back({static_cast<partition::Node>(from), static_cast<partition::Node>(to)});
  return partition::tasks_of(graph_of(std::move(all), {}, std::move(costs)));
}

std::vector<double> work_of(const std::vector<Segment>& segments, const StepGraph& step, const Times& times,
                            std::size_t clusters) {
  std::vector<double> work(clusters, 0.0);
  work.front() = times.loss;
  for (const Segment& segment : segments)
    for (const std::size_t node : segment.nodes) {
      work[segment.forward] += times.forward[node];
      if (step.dependences().tracked[node]) work[segment.backward] += times.backward[node];
    }
  return work;
}

double predicted(const std::vector<Segment>& segments, const StepGraph& step, const Times& times,
                 const Overheads& overheads, std::size_t clusters) {
  const std::size_t count = segments.size();
  std::vector<partition::Cluster> masters(2 * count + 1, 0);
  for (std::size_t s = 0; s < count; ++s) {
    masters[s] = segments[s].forward;
    masters[count + 1 + s] = segments[s].backward;
  }
  return partition::makespan_of(tasks_of(segments, step, times, overheads), masters, clusters,
                                overheads.latency);
}

}  // namespace partitioned
