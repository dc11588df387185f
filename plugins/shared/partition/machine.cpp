#include "machine.hpp"

#include <limits>
#include <numeric>
#include <queue>
#include <tuple>

#include <trainyard/error.hpp>

#include "loads.hpp"

namespace partition {
namespace {

/// The nodes that are ready on a core: the one with the longest way to the end first, then the lower one.
class Ready {
 public:
  void push(Node node, double rank) { queue_.emplace(rank, ~node); }
  bool empty() const { return queue_.empty(); }
  Node pop() {
    const Node node = ~queue_.top().second;
    queue_.pop();
    return node;
  }

 private:
  std::priority_queue<std::pair<double, Node>> queue_;
};

/// What a core does at which time, in order; it may have gaps.
class Timeline {
 public:
  /// Returns when something that takes `cost` can begin, from `earliest` on.
  double fit(double earliest, double cost) const {
    double begin = earliest;
    // Only what ends after `earliest` is in the way.
    auto busy = std::upper_bound(busy_.begin(), busy_.end(), earliest,
                                 [](double time, const Span& span) { return time < span.end; });
    for (; busy != busy_.end() && busy->begin < begin + cost; ++busy) begin = std::max(begin, busy->end);
    return begin;
  }
  /// What takes no time is in nobody's way, and would not be in order.
  void take(double begin, double cost) {
    if (cost <= 0.0) return;
    const Span span{begin, begin + cost};
    busy_.insert(std::upper_bound(busy_.begin(), busy_.end(), begin,
                                  [](double time, const Span& each) { return time < each.begin; }),
                 span);
  }

 private:
  struct Span {
    double begin, end;
  };
  std::vector<Span> busy_;
};

}  // namespace

Tasks tasks_of(const Graph& graph) {
  const std::size_t nodes = graph.degrees.size();
  Tasks tasks;
  tasks.begin.assign(nodes + 1, 0);
  tasks.waits.assign(nodes, 0);
  tasks.costs.resize(nodes);
  for (const Edge& edge : graph.edges) {
    ++tasks.begin[edge.source + std::size_t{1}];
    ++tasks.waits[edge.target];
  }
  std::partial_sum(tasks.begin.begin(), tasks.begin.end(), tasks.begin.begin());
  tasks.successors.resize(graph.edges.size());
  std::vector<std::uint32_t> next(tasks.begin.begin(), tasks.begin.end() - 1);
  for (const Edge& edge : graph.edges) tasks.successors[next[edge.source]++] = edge.target;
  std::vector<std::uint32_t> waits = tasks.waits;
  for (std::size_t i = 0; i < nodes; ++i) {
    // A number that no edge names is no node, where no costs say otherwise.
    tasks.costs[i] = graph.degrees[i] == 0 && graph.costs.empty() ? 0.0 : graph.cost(static_cast<Node>(i));
    tasks.total += tasks.costs[i];
    if (waits[i] == 0) tasks.order.push_back(static_cast<Node>(i));
  }
  for (std::size_t head = 0; head < tasks.order.size(); ++head) {
    const Node node = tasks.order[head];
    for (std::uint32_t k = tasks.begin[node]; k < tasks.begin[node + 1]; ++k)
      if (--waits[tasks.successors[k]] == 0) tasks.order.push_back(tasks.successors[k]);
  }
  if (tasks.order.size() != nodes) {
    const auto stuck = std::find_if(waits.begin(), waits.end(), [](std::uint32_t left) { return left > 0; });
    throw trainyard::ConfigError("the edges go round in a circle, of which node " +
                                 std::to_string(stuck - waits.begin()) +
                                 " is one or is reached from: only a graph without circles can be simulated");
  }
  for (const double rank : ranks_of(tasks, 0.0)) tasks.longest = std::max(tasks.longest, rank);
  return tasks;
}

std::vector<Cluster> masters_of(const Graph& graph, std::span<const Cluster> assigned, std::size_t clusters) {
  const std::size_t nodes = graph.degrees.size();
  // The edges to each node, and behind them those from it.
  std::vector<std::size_t> begin(nodes + 1, 0);
  for (const Edge& edge : graph.edges) {
    ++begin[edge.source + std::size_t{1}];
    ++begin[edge.target + std::size_t{1}];
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<std::size_t> next(begin.begin(), begin.end() - 1);
  std::vector<std::uint32_t> edges(begin.back());
  for (std::size_t i = 0; i < graph.edges.size(); ++i)
    edges[next[graph.edges[i].target]++] = static_cast<std::uint32_t>(i);
  const std::vector<std::size_t> middle = next;
  for (std::size_t i = 0; i < graph.edges.size(); ++i)
    edges[next[graph.edges[i].source]++] = static_cast<std::uint32_t>(i);

  std::vector<Cluster> masters(nodes, no_master);
  std::vector<double> sums(clusters, 0.0);
  Loads loads(clusters);
  for (std::size_t i = 0; i < nodes; ++i) {
    const bool has_in = middle[i] > begin[i];
    const std::size_t first = has_in ? begin[i] : middle[i], last = has_in ? middle[i] : begin[i + 1];
    for (std::size_t k = first; k < last; ++k) {
      const Cluster cluster = assigned[edges[k]];
      sums[cluster] += graph.weight(edges[k]);
      Cluster& best = masters[i];
      if (best == no_master || sums[cluster] > sums[best] || (sums[cluster] == sums[best] && cluster < best))
        best = cluster;
    }
    for (std::size_t k = first; k < last; ++k) sums[assigned[edges[k]]] = 0.0;
    if (masters[i] != no_master) loads.add(masters[i], graph.cost(static_cast<Node>(i)));
  }
  for (std::size_t i = 0; i < nodes; ++i) {
    if (masters[i] != no_master) continue;
    masters[i] = loads.least();
    if (!graph.costs.empty()) loads.add(masters[i], graph.costs[i]);
  }
  return masters;
}

std::vector<double> ranks_of(const Tasks& tasks, double latency) {
  std::vector<double> ranks(tasks.costs.size());
  for (auto node = tasks.order.rbegin(); node != tasks.order.rend(); ++node) {
    double rest = 0.0;
    for (std::uint32_t k = tasks.begin[*node]; k < tasks.begin[*node + 1]; ++k)
      rest = std::max(rest, latency + ranks[tasks.successors[k]]);
    ranks[*node] = tasks.costs[*node] + rest;
  }
  return ranks;
}

double makespan_of(const Tasks& tasks, std::span<const Cluster> masters, std::size_t clusters,
                   double latency) {
  const std::size_t nodes = tasks.costs.size();
  const std::vector<double> ranks = ranks_of(tasks, latency);
  // At a time, a node has all that it needs on its core, or a core is done with a node.
  enum class What : std::uint8_t { arrived, done };
  using Event = std::tuple<double, What, Node>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  std::vector<Ready> ready(clusters);
  std::vector<bool> is_busy(clusters, false);
  std::vector<std::uint32_t> waits = tasks.waits;
  std::vector<double> arrival(nodes, 0.0);
  for (std::size_t i = 0; i < nodes; ++i)
    if (waits[i] == 0) events.emplace(0.0, What::arrived, static_cast<Node>(i));
  std::vector<Cluster> touched;
  double now = 0.0;
  while (!events.empty()) {
    now = std::get<double>(events.top());
    touched.clear();
    while (!events.empty() && std::get<double>(events.top()) == now) {
      const auto [time, what, node] = events.top();
      events.pop();
      const Cluster core = masters[node];
      touched.push_back(core);
      if (what == What::arrived) {
        ready[core].push(node, ranks[node]);
        continue;
      }
      is_busy[core] = false;
      for (std::uint32_t k = tasks.begin[node]; k < tasks.begin[node + 1]; ++k) {
        const Node target = tasks.successors[k];
        arrival[target] = std::max(arrival[target], now + (masters[target] == core ? 0.0 : latency));
        if (--waits[target] == 0) events.emplace(arrival[target], What::arrived, target);
      }
    }
    for (const Cluster core : touched) {
      if (is_busy[core] || ready[core].empty()) continue;
      const Node node = ready[core].pop();
      is_busy[core] = true;
      events.emplace(now + tasks.costs[node], What::done, node);
    }
  }
  return now;
}

Schedule schedule_by_heft(const Tasks& tasks, std::size_t clusters, double latency,
                          const std::atomic<bool>& stop) {
  const std::size_t nodes = tasks.costs.size();
  const std::vector<double> ranks = ranks_of(tasks, latency);
  std::vector<std::size_t> places(
      nodes);  // in the order of the tasks, which a stable sort keeps where ranks are equal
  for (std::size_t i = 0; i < nodes; ++i) places[i] = i;
  std::stable_sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) {
    return ranks[tasks.order[a]] > ranks[tasks.order[b]];
  });
  // When the values that a node waits for are there: on a core that computes the last of them, and on the others.
  struct Arrival {
    double last = 0.0, second = 0.0;  ///< on other cores: of the core that is `from`, and of the rest
    Cluster from = no_master;
    double at_home = 0.0;  ///< the latest end on `from`
  };
  std::vector<std::vector<std::pair<Cluster, double>>> ends(
      nodes);  // what a node waits for: where and when done
  std::vector<Timeline> cores(clusters);
  Schedule made;
  made.masters.resize(nodes);
  std::vector<double> local(clusters, 0.0);
  for (std::size_t i = 0; i < nodes; ++i) {
    if (i % 256 == 0 && stop) return {};
    const Node node = tasks.order[places[i]];
    const double cost = tasks.costs[node];
    // The two latest arrivals of different cores say what any core waits for.
    Arrival arrival;
    for (const auto& [core, end] : ends[node]) local[core] = std::max(local[core], end);
    for (const auto& [core, end] : ends[node]) {
      if (core == arrival.from) continue;
      if (arrival.from == no_master || local[core] > arrival.at_home) {
        arrival.second = arrival.from == no_master ? 0.0 : arrival.at_home + latency;
        arrival.from = core;
        arrival.at_home = local[core];
      } else {
        arrival.second = std::max(arrival.second, local[core] + latency);
      }
    }
    arrival.last = arrival.from == no_master ? 0.0 : arrival.at_home + latency;
    double best_end = std::numeric_limits<double>::infinity(), best_begin = 0.0;
    Cluster best = 0;
    for (std::size_t core = 0; core < clusters; ++core) {
      const double earliest = core == arrival.from ? std::max(arrival.at_home, arrival.second)
                                                   : std::max(arrival.last, local[core]);
      const double begin = cores[core].fit(earliest, cost);
      if (begin + cost >= best_end) continue;
      best_end = begin + cost;
      best_begin = begin;
      best = static_cast<Cluster>(core);
    }
    for (const auto& [core, end] : ends[node]) local[core] = 0.0;
    ends[node] = {};
    cores[best].take(best_begin, cost);
    made.masters[node] = best;
    made.makespan = std::max(made.makespan, best_end);
    for (std::uint32_t k = tasks.begin[node]; k < tasks.begin[node + 1]; ++k)
      ends[tasks.successors[k]].emplace_back(best, best_end);
  }
  return made;
}

}  // namespace partition
