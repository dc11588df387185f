// The tool partition: rules against the pseudo-code of the card in sets and maps, cuts against all cuts, machines against a
// clock that ticks, files, and made-up graphs.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include <catch2/catch.hpp>

#include <trainyard/error.hpp>

#include "plugins/shared/partition/loads.hpp"
#include "plugins/shared/partition/machine.hpp"
#include "plugins/shared/partition/metis.hpp"
#include "plugins/shared/partition/quality.hpp"
#include "plugins/shared/partition/stream.hpp"
#include "plugins/tool/partition/edge_file.hpp"
#include "plugins/tool/partition/made_up.hpp"
#include "plugins/tool/partition/written.hpp"
#include "tests/support/files.hpp"

namespace partition_tests {

using namespace partition;
using Catch::Contains;
using trainyard::ConfigError;
using trainyard::DataError;
using trainyard::test::message_of;
using Clusters = std::vector<Cluster>;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
const Algorithm all_rules[] = {Algorithm::wb_libra,      Algorithm::w_libra,      Algorithm::libra,
                               Algorithm::wb_powergraph, Algorithm::w_powergraph, Algorithm::powergraph,
                               Algorithm::hdrf,          Algorithm::ebv,          Algorithm::dbh,
                               Algorithm::random};
const std::atomic<bool> going_on = false;

struct Held {
  std::vector<Edge> edges;
  std::vector<double> weights;
};

Graph graph_of(std::vector<Edge> edges, std::vector<double> weights, std::vector<double> costs = {}) {
  const auto held = std::make_shared<Held>(Held{std::move(edges), std::move(weights)});
  Graph graph;
  graph.edges = held->edges;
  graph.weights = held->weights;
  graph.costs = std::move(costs);
  graph.owner = held;
  Node last = 0;
  for (const Edge& edge : held->edges) last = std::max({last, edge.source, edge.target});
  count(graph, last + 1);
  return graph;
}

/// The graph of the card's exact oracle.
Graph eight_edges() {
  return graph_of({{0, 1}, {0, 2}, {3, 4}, {0, 3}, {2, 4}, {1, 2}, {0, 4}, {5, 0}}, {4, 1, 3, 2, 2, 1, 5, 1});
}

/// Some edges lead from a node to itself, some are there twice, some weigh nothing; small whole weights make ties.
Graph random_graph(std::mt19937& dice, std::size_t nodes, std::size_t edges, bool ties) {
  std::vector<Edge> made;
  std::vector<double> weights;
  std::lognormal_distribution<double> lognormal;
  for (std::size_t i = 0; i < edges; ++i) {
    const auto hub = static_cast<Node>(std::pow(std::uniform_real_distribution<>(0, 1)(dice), 2.0) *
                                       static_cast<double>(nodes));
    made.push_back({hub, static_cast<Node>(dice() % nodes)});
    if (i % 11 == 5) std::swap(made.back().source, made.back().target);
    if (i % 13 == 7) made.back() = made[dice() % made.size()];
    weights.push_back(ties ? static_cast<double>(dice() % 4) : lognormal(dice));
  }
  return graph_of(std::move(made), std::move(weights));
}

/// The rules as the card has them, word by word, with sets.
class Slow {
 public:
  Slow(const Graph& graph, Algorithm rule, const Settings& settings)
      : graph_(graph), rule_(rule), settings_(settings), load_(settings.clusters, 0.0) {
    for (const Edge& edge : graph.edges) {
      ++degree_[edge.source];
      if (edge.target != edge.source) ++degree_[edge.target];
    }
    rest_ = degree_;
    for (std::size_t c = 0; c < settings.clusters; ++c) all_.insert(static_cast<Cluster>(c));
    double sum = 0.0;
    for (std::size_t i = 0; i < graph.edges.size(); ++i) sum += graph.weight(i);
    if (rule == Algorithm::wb_libra || rule == Algorithm::wb_powergraph)
      bound_ = std::max(1.0, settings.lambda) * sum / static_cast<double>(settings.clusters);
  }
  Clusters run() {
    Clusters clusters(graph_.edges.size());
    for (std::size_t k = 0; k < clusters.size(); ++k) {
      const std::size_t i = settings_.order.empty() ? k : settings_.order[k];
      const auto [u, v] = graph_.edges[i];
      const Cluster c = rule_ == Algorithm::hdrf  ? scored(u, v)
                        : rule_ == Algorithm::ebv ? balanced(u, v)
                                                  : chosen(u, v);
      clusters[i] = c;
      ++edges_in_[c];
      for (const Node end : {u, v}) nodes_in_[c] += held_[end].insert(c).second ? 1 : 0;
      const bool by_count =
          rule_ == Algorithm::libra || rule_ == Algorithm::powergraph || rule_ == Algorithm::hdrf;
      load_[c] += by_count ? 1.0 : graph_.weight(i);
      --rest_[u];
      if (v != u) --rest_[v];
    }
    return clusters;
  }

 private:
  using Set = std::set<Cluster>;

  Cluster lm(const Set& among) const {
    return *std::min_element(among.begin(), among.end(),
                             [&](Cluster a, Cluster b) { return load_[a] < load_[b]; });
  }
  Cluster chosen(Node u, Node v) {
    const Set &a = held_[u], &b = held_[v];
    Set common, either = a;
    either.insert(b.begin(), b.end());
    for (const Cluster c : a)
      if (b.contains(c)) common.insert(c);
    std::vector<Set> tries;
    if (a.empty() && b.empty())
      tries = {};
    else if (a.empty() || b.empty())
      tries = {either};
    else if (!common.empty())
      tries = {common, either};
    else if (rule_ == Algorithm::libra || rule_ == Algorithm::w_libra || rule_ == Algorithm::wb_libra)
      tries = degree_[v] < degree_[u] ? std::vector<Set>{b, a} : std::vector<Set>{a, b};
    else
      tries = rest_[v] > rest_[u] ? std::vector<Set>{b, a} : std::vector<Set>{a, b};
    for (const Set& each : tries)
      if (load_[lm(each)] < bound_) return lm(each);
    return lm(all_);
  }
  Cluster scored(Node u, Node v) {
    ++seen_[u];
    if (v != u) ++seen_[v];
    const double both = static_cast<double>(seen_[u]) + static_cast<double>(seen_[v]);
    const double least = *std::min_element(load_.begin(), load_.end());
    const double most = *std::max_element(load_.begin(), load_.end());
    Cluster best = 0;
    double highest = -1.0;
    for (const Cluster c : all_) {
      const double of_u = held_[u].contains(c) ? 2.0 - static_cast<double>(seen_[u]) / both : 0.0;
      const double of_v = held_[v].contains(c) ? 2.0 - static_cast<double>(seen_[v]) / both : 0.0;
      const double score = of_u + of_v + settings_.hdrf_lambda / (1.0 + most - least) * (most - load_[c]);
      if (score <= highest) continue;
      highest = score;
      best = c;
    }
    return best;
  }

  /// Of EBV, in whole numbers: each term times the number of edges and of nodes.
  Cluster balanced(Node u, Node v) {
    const auto edges = static_cast<std::int64_t>(graph_.edges.size()),
               nodes = static_cast<std::int64_t>(degree_.size());
    Cluster best = 0;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const Cluster c : all_) {
      const std::int64_t absent = (held_[u].contains(c) ? 0 : 1) + (held_[v].contains(c) ? 0 : 1);
      const std::int64_t value = absent * edges * nodes + static_cast<std::int64_t>(settings_.clusters) *
                                                              (edges_in_[c] * nodes + nodes_in_[c] * edges);
      if (value >= least) continue;
      least = value;
      best = c;
    }
    return best;
  }

  const Graph& graph_;
  Algorithm rule_;
  Settings settings_;
  std::map<Cluster, std::int64_t> edges_in_, nodes_in_;
  double bound_ = infinite;
  std::vector<double> load_;
  std::map<Node, std::size_t> degree_, rest_, seen_;
  std::map<Node, Set> held_;
  Set all_;
};

Settings settings_of(std::size_t clusters, double lambda = 1.0) {
  Settings settings;
  settings.clusters = clusters;
  settings.lambda = lambda;
  return settings;
}

std::vector<double> loads_of(const Graph& graph, const Clusters& clusters, std::size_t count) {
  std::vector<double> loads(count, 0.0);
  for (std::size_t i = 0; i < clusters.size(); ++i) loads.at(clusters[i]) += graph.weight(i);
  return loads;
}

double replication_of(const Graph& graph, const Clusters& clusters) {
  std::map<Node, std::set<Cluster>> held;
  for (std::size_t i = 0; i < clusters.size(); ++i) {
    held[graph.edges[i].source].insert(clusters[i]);
    held[graph.edges[i].target].insert(clusters[i]);
  }
  double sum = 0.0;
  for (const auto& [node, set] : held) sum += static_cast<double>(set.size());
  return sum / static_cast<double>(held.size());
}

/// Runs tasks on so many threads, which take them in turn.
RunTasks on_threads(std::size_t threads) {
  return [threads](std::size_t tasks, const std::function<void(std::size_t)>& task) {
    std::vector<std::jthread> all;
    for (std::size_t t = 0; t < threads; ++t)
      all.emplace_back([=] {
        for (std::size_t i = t; i < tasks; i += threads) task(i);
      });
  };
}

/// A graph without circles, whose costs and edges are whole numbers.
Graph random_tasks(std::mt19937& dice, std::size_t nodes, std::size_t edges) {
  std::vector<Node> names(nodes);
  for (std::size_t i = 0; i < nodes; ++i) names[i] = static_cast<Node>(i);
  std::shuffle(names.begin(), names.end(), dice);
  std::vector<Edge> made;
  std::vector<double> weights, costs;
  for (std::size_t i = 0; i < edges; ++i) {
    std::size_t a = dice() % nodes, b = dice() % nodes;
    if (a == b) continue;
    if (a > b) std::swap(a, b);
    made.push_back({names[a], names[b]});
    weights.push_back(static_cast<double>(1 + dice() % 4));
  }
  made.push_back({names[0], names[1]});
  weights.push_back(1.0);
  for (std::size_t i = 0; i < nodes; ++i) costs.push_back(static_cast<double>(dice() % 5));
  return graph_of(std::move(made), std::move(weights), std::move(costs));
}

/// The costliest way from a node, each edge with a latency, by recursion.
double way_from(const Graph& graph, Node node, double latency, std::map<Node, double>& known) {
  if (const auto found = known.find(node); found != known.end()) return found->second;
  double rest = 0.0;
  for (const Edge& edge : graph.edges)
    if (edge.source == node) rest = std::max(rest, latency + way_from(graph, edge.target, latency, known));
  return known[node] = graph.cost(node) + rest;
}

/// The card's machine by a clock that ticks: at each tick, an idle core takes the ready node with the longest way to the end.
/// Nodes that cost nothing are done in the tick that they begin in.
double ticked_makespan(const Graph& graph, const Clusters& masters, std::size_t clusters, double latency) {
  const std::size_t nodes = graph.degrees.size();
  std::map<Node, double> ways;
  std::vector<double> done(nodes, -1.0), free_at(clusters, 0.0);
  std::size_t left = nodes;
  double last = 0.0;
  for (double now = 0.0; left > 0; now += 1.0)
    for (bool any = true; any;) {
      any = false;
      for (std::size_t core = 0; core < clusters; ++core) {
        if (free_at[core] > now) continue;
        std::optional<Node> best;
        for (std::size_t i = 0; i < nodes; ++i) {
          const auto node = static_cast<Node>(i);
          if (done[i] >= 0.0 || masters[i] != core) continue;
          bool ready = true;
          for (const Edge& edge : graph.edges)
            if (edge.target == node)
              ready = ready && done[edge.source] >= 0.0 &&
                      done[edge.source] + (masters[edge.source] == core ? 0.0 : latency) <= now;
          if (ready &&
              (!best || way_from(graph, node, latency, ways) > way_from(graph, *best, latency, ways)))
            best = node;
        }
        if (!best) continue;
        any = true;
        --left;
        free_at[core] = done[*best] = now + graph.cost(*best);
        last = std::max(last, done[*best]);
      }
    }
  return last;
}

}  // namespace

TEST_CASE("partition: the card's eight edges", "[partition]") {
  const Graph graph = eight_edges();
  const Settings settings = settings_of(2);
  CHECK(bound_of(graph, settings) == 9.5);
  const Clusters bounded = stream(graph, Algorithm::wb_libra, settings).clusters;
  CHECK((bounded == Clusters{0, 0, 1, 1, 0, 0, 1, 0}));
  CHECK(quality_of(graph, bounded, 2).replication == Approx(1.3333).margin(5e-5));
  CHECK(quality_of(graph, bounded, 2).weight_imbalance == Approx(1.0526).margin(5e-5));
  const Clusters counted = stream(graph, Algorithm::libra, settings).clusters;
  CHECK((counted == Clusters{0, 0, 1, 1, 0, 0, 1, 1}));
  CHECK(quality_of(graph, counted, 2).weight_imbalance == Approx(1.1579).margin(5e-5));
  // By hand: nodes 0 and 3 have as many edges to come as 4, 2 and 3 have more; see the rule.
  for (const Algorithm rule : all_rules) {
    if (rule == Algorithm::dbh || rule == Algorithm::random) continue;
    CHECK((stream(graph, rule, settings).clusters == Slow(graph, rule, settings).run()));
  }
}

TEST_CASE("partition: rules are those of the card in sets and maps", "[partition]") {
  std::mt19937 dice(1);
  for (int turn = 0; turn < 40; ++turn) {
    const std::size_t nodes = 5 + dice() % 150;
    const Graph graph = random_graph(dice, nodes, 120 + dice() % 400, turn % 2 == 0);
    for (const std::size_t clusters : {1U, 2U, 7U, 63U, 64U, 65U, 100U}) {
      Settings settings =
          settings_of(clusters, turn % 3 == 0 ? 1.0 : 1.0 + static_cast<double>(dice() % 8) / 4.0);
      settings.hdrf_lambda = turn % 4 == 1 ? 3.0 : 1.0;
      const auto order = order_of(graph, turn % 5 == 4 ? Order::shuffled : Order::given, 3);
      settings.order = order;
      for (const Algorithm rule : all_rules) {
        if (rule == Algorithm::dbh || rule == Algorithm::random) continue;
        INFO("turn " << turn << ", rule " << static_cast<int>(rule) << ", clusters " << clusters);
        REQUIRE((stream(graph, rule, settings).clusters == Slow(graph, rule, settings).run()));
      }
    }
  }
}

TEST_CASE("partition: what holds of any cut, on a thousand graphs", "[partition]") {
  std::mt19937 dice(2);
  for (int turn = 0; turn < 1000; ++turn) {
    const Graph graph = random_graph(dice, 2 + dice() % 60, 1 + dice() % 200, turn % 2 == 0);
    const std::size_t clusters = 1 + dice() % std::min<std::size_t>(graph.edges.size(), 90);
    const Settings settings = settings_of(clusters, static_cast<double>(dice() % 5) / 2.0);
    for (const Algorithm rule : all_rules) {
      const Clusters made = stream(graph, rule, settings).clusters;
      REQUIRE(made.size() == graph.edges.size());
      const std::vector<double> loads =
          loads_of(graph, made, clusters);  // throws where there is no such cluster
      const double most = *std::max_element(loads.begin(), loads.end());
      const Quality found = quality_of(graph, made, clusters);
      REQUIRE(found.largest_load == most);
      REQUIRE(found.replication == replication_of(graph, made));
      if (rule != Algorithm::wb_libra && rule != Algorithm::wb_powergraph) continue;
      REQUIRE(most <= bound_of(graph, settings) + graph.largest_weight * (1.0 + 1e-12));
    }
  }
}

TEST_CASE("partition: the bound", "[partition]") {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const Graph graph = make_up(MadeUp::ba, 800, 4, seed, on_threads(1));
    for (const std::size_t clusters : {4U, 70U}) {
      const auto with = [&](double lambda) {
        return stream(graph, Algorithm::wb_libra, settings_of(clusters, lambda)).clusters;
      };
      const double mean = graph.total_weight / static_cast<double>(clusters);
      const auto most = [&](const Clusters& made) {
        const auto loads = loads_of(graph, made, clusters);
        return *std::max_element(loads.begin(), loads.end());
      };
      for (const double lambda : {1.0, 1.1, 2.0})
        CHECK(most(with(lambda)) <= lambda * mean + graph.largest_weight * (1.0 + 1e-12));
      CHECK(most(with(2.0)) > most(with(1.0)));
      const Clusters unbound = stream(graph, Algorithm::w_libra, settings_of(clusters)).clusters;
      CHECK((with(infinite) == unbound));
      CHECK((with(static_cast<double>(clusters)) == unbound));
      CHECK((with(1.0) != unbound));
      for (const double lambda : {0.0, 0.3, 0.999}) CHECK((with(lambda) == with(1.0)));
      CHECK((stream(graph, Algorithm::wb_powergraph, settings_of(clusters, infinite)).clusters ==
             stream(graph, Algorithm::w_powergraph, settings_of(clusters)).clusters));
    }
  }
}

TEST_CASE("partition: small cuts beside all cuts", "[partition]") {
  std::mt19937 dice(4);
  double worst = 1.0;
  for (int turn = 0; turn < 60; ++turn) {
    const Graph graph = random_graph(dice, 4 + dice() % 5, 6 + dice() % 5, turn % 2 == 0);
    const Settings settings = settings_of(2);
    const Clusters made = stream(graph, Algorithm::wb_libra, settings).clusters;
    const auto made_loads = loads_of(graph, made, 2);
    const double most = std::max(made_loads[0], made_loads[1]);
    CHECK(most <= bound_of(graph, settings) + graph.largest_weight * (1.0 + 1e-12));
    double best = infinite;
    for (std::size_t mask = 0; mask < std::size_t{1} << made.size(); ++mask) {
      Clusters cut;
      for (std::size_t i = 0; i < made.size(); ++i) cut.push_back(static_cast<Cluster>(mask >> i & 1));
      const auto loads = loads_of(graph, cut, 2);
      if (std::max(loads[0], loads[1]) <= most) best = std::min(best, replication_of(graph, cut));
    }
    worst = std::max(worst, replication_of(graph, made) / best);
  }
  INFO("worst " << worst);
  CHECK(worst <= 2.0);
  CHECK(worst > 1.0);
}

TEST_CASE("partition: growing networks are cut as the card's were", "[partition]") {
  const Graph graph = make_up(MadeUp::ba, 20'000, 3, 0, on_threads(2));
  CHECK(graph.nodes == 20'000);
  CHECK(std::abs(static_cast<double>(graph.edges.size()) - 59'928.0) < 60.0);
  const auto shuffled = order_of(graph, Order::shuffled, 0);
  struct Row {
    Algorithm rule;
    std::size_t clusters;
    bool is_shuffled;
    double replication, weight_imbalance;  ///< the most that it may be
  };
  for (const Row& row :
       {Row{Algorithm::wb_libra, 8, false, 2.035, 1.03}, Row{Algorithm::wb_libra, 64, false, 2.712, 1.03},
        Row{Algorithm::wb_libra, 8, true, 2.035, 1.03}, Row{Algorithm::wb_libra, 64, true, 2.760, 1.03},
        Row{Algorithm::libra, 8, true, 2.037, 1.06}, Row{Algorithm::libra, 64, true, 2.758, 1.15},
        Row{Algorithm::powergraph, 8, true, 2.456, 1.06}, Row{Algorithm::powergraph, 64, true, 3.070, 1.2},
        Row{Algorithm::hdrf, 8, true, 2.097, 1.06}, Row{Algorithm::dbh, 8, false, 2.43, 1.08},
        Row{Algorithm::dbh, 64, false, 3.51, 1.2}, Row{Algorithm::random, 8, false, 3.76, 1.06},
        Row{Algorithm::random, 64, false, 5.40, 1.3}, Row{Algorithm::powergraph, 8, false, 1.0, 8.0},
        Row{Algorithm::libra, 64, false, 1.0, 64.0}, Row{Algorithm::hdrf, 8, false, 1.0, 8.0},
        Row{Algorithm::w_powergraph, 8, false, 1.0, 8.0}, Row{Algorithm::w_libra, 8, false, 1.0, 8.0}}) {
    INFO("rule " << static_cast<int>(row.rule) << ", clusters " << row.clusters << ", shuffled "
                 << row.is_shuffled);
    Settings settings = settings_of(row.clusters);
    if (row.is_shuffled) settings.order = shuffled;
    const Quality found = quality_of(graph, stream(graph, row.rule, settings).clusters, row.clusters);
    CHECK(found.replication == Approx(row.replication).epsilon(0.03));
    CHECK(found.weight_imbalance <= row.weight_imbalance * (1.0 + 1e-9));
  }
  // By the weight of cut edges, as the card ran it.
  const NodesCut cut = cut_by_metis(graph, true, settings_of(8));
  const Quality beside = quality_of(graph, cut.edges.clusters, 8);
  CHECK(beside.replication == Approx(1.978).epsilon(0.03));
  CHECK(beside.weight_imbalance <= 1.06);
  CHECK(quality_of(graph, cut_by_metis(graph, false, settings_of(8)).edges.clusters, 8).replication <
        beside.replication);
}

TEST_CASE("partition: METIS takes graphs of any kind", "[partition]") {
  std::mt19937 dice(5);
  for (int turn = 0; turn < 10; ++turn) {
    const Graph graph = random_graph(dice, 2 + dice() % 60, 2 + dice() % 200, turn % 2 == 0);
    const std::size_t clusters = 1 + dice() % std::min<std::size_t>(graph.edges.size(), 70);
    INFO("turn " << turn << ", " << graph.edges.size() << " edges, clusters " << clusters);
    const NodesCut cut = cut_by_metis(graph, turn % 3 == 0, settings_of(clusters));
    for (std::size_t i = 0; i < graph.edges.size(); ++i) {
      const auto [source, target] = graph.edges[i];
      const Cluster given = cut.edges.clusters.at(i);
      CHECK((given == cut.masters[source] || given == cut.masters[target]));
      CHECK(given < clusters);
    }
    CHECK((cut.edges.clusters == cut_by_metis(graph, turn % 3 == 0, settings_of(clusters)).edges.clusters));
  }
  std::atomic<bool> stop = true;
  Settings stopped = settings_of(4);
  stopped.stop = &stop;
  const Graph graph = make_up(MadeUp::ba, 2000, 3, 0, on_threads(1));
  CHECK(cut_by_metis(graph, false, stopped).edges.clusters.empty());
  CHECK(stream(graph, Algorithm::wb_libra, stopped).clusters.empty());
  CHECK(stream(graph, Algorithm::random, stopped).clusters.empty());
}

TEST_CASE("partition: a stop ends METIS as it works", "[partition]") {
  const Graph graph = make_up(MadeUp::ba, 40'000, 4, 0, on_threads(2));
  const auto seconds_of = [&](const std::atomic<bool>& stop, bool stopped) {
    Settings settings = settings_of(64);
    settings.stop = &stop;
    const auto begin = std::chrono::steady_clock::now();
    CHECK(cut_by_metis(graph, false, settings).edges.clusters.empty() == stopped);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::atomic<bool> none = false, stop = false;
  const double whole = seconds_of(none, false);
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::duration<double>(whole / 4.0));
    stop = true;
  });
  const double taken = seconds_of(stop, true);
  INFO(taken << " s of " << whole);
  CHECK(taken < 0.6 * whole);
}

TEST_CASE("partition: no more than 16 bytes an edge", "[partition]") {
  const Graph sparse = make_up(MadeUp::ba, 20'000, 3, 0, on_threads(1));
  const Graph dense = make_up(MadeUp::rmat, 1 << 14, 10, 0, on_threads(1));
  for (const Graph* graph : {&sparse, &dense})
    for (const std::size_t clusters : {8U, 64U, 1024U})
      for (const Algorithm rule : all_rules) {
        const Assigned made = stream(*graph, rule, settings_of(clusters));
        INFO("rule " << static_cast<int>(rule) << ", clusters " << clusters);
        CHECK(static_cast<double>(made.bytes) <= 16.0 * static_cast<double>(graph->edges.size()));
      }
}

TEST_CASE("partition: made-up graphs are the same on any number of threads", "[partition]") {
  for (const MadeUp which : {MadeUp::ba, MadeUp::rmat}) {
    const Graph one = make_up(which, 4096, 5, 7, on_threads(1)),
                two = make_up(which, 4096, 5, 7, on_threads(2));
    const Graph other = make_up(which, 4096, 5, 8, on_threads(2));
    const auto same = [](const Graph& a, const Graph& b) {
      return std::equal(
          a.edges.begin(), a.edges.end(), b.edges.begin(), b.edges.end(),
          [](const Edge& x, const Edge& y) { return x.source == y.source && x.target == y.target; });
    };
    CHECK(same(one, two));
    CHECK(std::equal(one.weights.begin(), one.weights.end(), two.weights.begin(), two.weights.end()));
    CHECK(!same(one, other));
    // No part is another one again.
    for (std::size_t shift = 1; shift < one.edges.size() / 2; shift *= 2) {
      std::size_t again = 0, weighs = 0;
      for (std::size_t i = 0; i + shift < one.edges.size(); ++i) {
        const Edge &a = one.edges[i], &b = one.edges[i + shift];
        again += a.source == b.source && a.target == b.target;
        weighs += one.weights[i] == one.weights[i + shift];
      }
      INFO("shift " << shift);
      CHECK(again < one.edges.size() / 100);
      CHECK(weighs < one.edges.size() / 100);
    }
    double sum = 0.0;
    for (const double weight : one.weights) sum += std::log(weight);
    CHECK(std::abs(sum / static_cast<double>(one.weights.size())) < 0.03);
    // Hubs: a node in a hundred has far more than the mean.
    std::vector<std::uint32_t> degrees = one.degrees;
    std::sort(degrees.rbegin(), degrees.rend());
    CHECK(degrees[40] > 30);
  }
  CHECK(make_up(MadeUp::rmat, 4096, 5, 7, on_threads(1)).edges.size() == 4096 * 5);
  CHECK_THAT(message_of<ConfigError>([] { make_up(MadeUp::rmat, 1000, 3, 0, on_threads(1)); }),
             Contains("as 512"));
  CHECK_THAT(message_of<ConfigError>([] { make_up(MadeUp::ba, 3, 3, 0, on_threads(1)); }),
             Contains("expected more than made_degree"));
  CHECK_THAT(message_of<ConfigError>([] { make_up(MadeUp::rmat, 1 << 30, 3, 0, on_threads(1)); }),
             Contains("edges"));
}

TEST_CASE("partition: orders have every edge once, and a walk goes outwards", "[partition]") {
  const Graph graph = eight_edges();
  CHECK(order_of(graph, Order::given, 1).empty());
  CHECK((order_of(graph, Order::bfs, 1) == std::vector<std::uint32_t>{0, 1, 3, 6, 7, 5, 4, 2}));
  std::mt19937 dice(6);
  const Graph large = random_graph(dice, 300, 500, false);
  // By hand: the degrees of the nodes are 5, 2, 3, 2, 3 and 1.
  CHECK((order_of(graph, Order::degrees, 1) == std::vector<std::uint32_t>{2, 5, 4, 7, 0, 3, 1, 6}));
  for (const Order order : {Order::shuffled, Order::bfs, Order::degrees}) {
    auto places = order_of(large, order, 1);
    CHECK((places == order_of(large, order, 1)));
    if (order == Order::shuffled) CHECK((places != order_of(large, order, 2)));
    std::sort(places.begin(), places.end());
    REQUIRE(places.size() == 500);
    for (std::size_t i = 0; i < places.size(); ++i) CHECK(places[i] == i);
  }
}

TEST_CASE("partition: a graph is read as it was written", "[partition]") {
  const trainyard::test::TempFolder folder;
  const std::string text =
      folder.write("a.edges", "# comment\n% another\n0 1 4\n0\t2 1e0\r\n\n3,4,3.5\n 5   0 0");
  const Graph graph = read_graph(text, "", going_on);
  REQUIRE(graph.edges.size() == 4);
  CHECK(graph.nodes == 6);
  CHECK(graph.edges[2].source == 3);
  CHECK(graph.edges[3].target == 0);
  CHECK(graph.weight(2) == 3.5);
  CHECK(graph.weight(3) == least_weight);
  CHECK(graph.total_weight == Approx(8.5));
  CHECK((graph.degrees == std::vector<std::uint32_t>{3, 1, 1, 1, 1, 1}));
  write_edges(folder.path("b.edges"), graph);
  const Graph again =
      read_graph(folder.path("b.edges"), folder.write("costs", "1\n2\n3\n4\n5\n6\n7.5\n"), going_on);
  REQUIRE(again.edges.size() == 4);
  CHECK(std::equal(graph.weights.begin(), graph.weights.end(), again.weights.begin(), again.weights.end()));
  CHECK(again.nodes == 7);
  CHECK(again.cost(6) == 7.5);
  const Graph plain = read_graph(folder.write("c.edges", "7 7\n7 9\n"), "", going_on);
  CHECK(plain.nodes == 2);
  CHECK(plain.total_weight == 2.0);
  CHECK(plain.degrees[7] == 2);
  write_edges(folder.path("d.edges"), plain);
  CHECK(read_graph(folder.path("d.edges"), "", going_on).weights.empty());
  CHECK(std::filesystem::file_size(folder.path("d.edges")) == 24 + 2 * 8);
}

TEST_CASE("partition: what is wrong with a file is told with its place", "[partition]") {
  const trainyard::test::TempFolder folder;
  const auto refusal = [&](const std::string& text, const std::string& costs = "") {
    const std::string path = folder.write("bad.edges", text);
    const std::string other = costs.empty() ? "" : folder.write("costs", costs);
    return message_of<DataError>([&] { read_graph(path, other, going_on); });
  };
  CHECK_THAT(refusal("0 1\n0 -1\n"), Contains("bad.edges:2: node -1 is negative"));
  CHECK_THAT(refusal("0 1\n\n7\n"), Contains("bad.edges:3: has 1 column: expected two nodes"));
  CHECK_THAT(refusal("0 1 2 3\n"), Contains("has 4 columns"));
  CHECK_THAT(refusal("0 1 2\n0 1\n"), Contains("bad.edges:2: has 2 columns, and the lines ahead have 3"));
  CHECK_THAT(refusal(""), Contains("has no edges"));
  CHECK_THAT(refusal("# nothing\n"), Contains("has no edges"));
  CHECK_THAT(refusal("0 99999999999999999999\n"), Contains("is too large: expected at most 4294967294"));
  CHECK_THAT(refusal("0 4294967295\n"), Contains("is too large: expected at most 4294967294"));
  CHECK_THAT(refusal("0 4000000000\n"), Contains("without large gaps"));
  CHECK_THAT(refusal("0 1.5\n"), Contains("\"1.5\" is no node"));
  CHECK_THAT(refusal("a b\n"), Contains("\"a\" is no node"));
  for (const char* weight : {"nan", "inf", "-1", "1e999", "x", "1x"})
    CHECK_THAT(refusal("0 1 1\n0 1 " + std::string(weight) + "\n"),
               Contains("bad.edges:2: the weight is \"" + std::string(weight) + "\""));
  CHECK_THAT(refusal("0 1 1e308\n0 1 1e308\n"), Contains("sum up to more than a number can hold"));
  CHECK_THAT(refusal("0 5\n", "1\n1\n"), Contains("node 5, and the costs are those of 2 nodes"));
  CHECK_THAT(refusal("0 1\n", "1\n-1\n"), Contains("costs:2: the cost is \"-1\""));
  CHECK_THAT(refusal("0 1\n", "1 1\n"), Contains("costs:1: has 2 columns"));
  CHECK_THAT(refusal("0 1\n", "#\n"), Contains("has no costs"));
  CHECK_THAT(message_of<DataError>([&] { read_graph(folder.path("."), "", going_on); }),
             Contains("is no file"));
  CHECK_THAT(message_of<DataError>([&] { read_graph(folder.path("absent"), "", going_on); }),
             Contains("cannot be read"));
  // The binary form, cut off anywhere and with what it may not have.
  const std::string whole = folder.path("whole.edges");
  write_edges(whole, eight_edges());
  for (std::size_t size = 8; size < 24 + 8 * 16; size += 3)
    CHECK_THAT(message_of<DataError>([&] { read_graph(folder.truncate(whole, size), "", going_on); }),
               Contains("is damaged"));
  std::string bytes = trainyard::test::read_file(whole);
  const auto with = [&](std::size_t place, std::uint64_t value, std::size_t size) {
    std::string changed = bytes;
    std::memcpy(changed.data() + place, &value, size);
    return refusal(changed);
  };
  CHECK_THAT(with(24 + 8, 0xffffffff, 4), Contains("edge 2: a node is too large"));
  CHECK_THAT(with(24 + 64 + 16, 0x7ff8000000000000, 8), Contains("edge 3: the weight is nan"));
  CHECK_THAT(with(16, 2, 8), Contains("is damaged"));
  CHECK_THAT(with(8, std::uint64_t{1} << 62, 8), Contains("is damaged"));
}

TEST_CASE("partition: files have a line an edge and a line a node", "[partition]") {
  const trainyard::test::TempFolder folder;
  const Graph graph = eight_edges();
  const Clusters made = stream(graph, Algorithm::wb_libra, settings_of(2)).clusters;
  write_assignment(folder.path("clusters"), made);
  CHECK(trainyard::test::read_file(folder.path("clusters")) == "0\n0\n1\n1\n0\n0\n1\n0\n");
  for (const std::size_t clusters : {2U, 100U}) {
    write_nodes(folder.path("nodes"), graph, made, Clusters{0, 0, 1, 1, 1, 0}, clusters);
    CHECK(trainyard::test::read_file(folder.path("nodes")) == "0 1\n0\n1 0\n1\n1 0\n0\n");
  }
  CHECK_THAT(message_of<DataError>([&] { write_assignment(folder.path("no/clusters"), made); }),
             Contains("cannot be written"));
}

TEST_CASE("partition: a node is computed where most of what it needs is", "[partition]") {
  std::mt19937 dice(7);
  for (int turn = 0; turn < 50; ++turn) {
    const Graph graph = random_tasks(dice, 20, 60);
    const Clusters made = stream(graph, Algorithm::random, settings_of(5)).clusters;
    const Clusters masters = masters_of(graph, made, 5);
    for (std::size_t i = 0; i < masters.size(); ++i) {
      std::map<Cluster, double> in, out;
      for (std::size_t k = 0; k < made.size(); ++k) {
        if (graph.edges[k].target == i) in[made[k]] += graph.weight(k);
        if (graph.edges[k].source == i) out[made[k]] += graph.weight(k);
      }
      const auto& sums = in.empty() ? out : in;
      if (sums.empty()) continue;
      Cluster best = sums.begin()->first;
      for (const auto& [cluster, sum] : sums)
        if (sum > sums.at(best)) best = cluster;
      CHECK(masters[i] == best);
    }
  }
}

TEST_CASE("partition: the machine is that of a clock that ticks", "[partition]") {
  std::mt19937 dice(8);
  for (int turn = 0; turn < 60; ++turn) {
    const Graph graph = random_tasks(dice, 3 + dice() % 25, dice() % 60);
    const Tasks tasks = tasks_of(graph);
    const std::size_t clusters = 1 + dice() % 4;
    const double latency = static_cast<double>(dice() % 4);
    Clusters masters;
    for (std::size_t i = 0; i < graph.degrees.size(); ++i)
      masters.push_back(static_cast<Cluster>(dice() % clusters));
    INFO("turn " << turn);
    const double found = makespan_of(tasks, masters, clusters, latency);
    CHECK(found == ticked_makespan(graph, masters, clusters, latency));
    CHECK(found >= tasks.bound(clusters));
    std::map<Node, double> ways;
    double longest = 0.0;
    for (std::size_t i = 0; i < masters.size(); ++i)
      longest = std::max(longest, way_from(graph, static_cast<Node>(i), 0.0, ways));
    CHECK(tasks.longest == longest);
  }
}

TEST_CASE("partition: list scheduling places each node where it is done first", "[partition]") {
  std::mt19937 dice(9);
  for (int turn = 0; turn < 60; ++turn) {
    const Graph graph = random_tasks(dice, 3 + dice() % 40, dice() % 120);
    const Tasks tasks = tasks_of(graph);
    const std::size_t clusters = 1 + dice() % 5;
    const double latency = static_cast<double>(dice() % 6);
    const Schedule schedule = schedule_by_heft(tasks, clusters, latency, going_on);
    CHECK(schedule.makespan >= tasks.bound(clusters));
    // The same by trying, for each core, every time at which something ends.
    const std::vector<double> ranks = ranks_of(tasks, latency);
    std::vector<Node> nodes = tasks.order;
    std::stable_sort(nodes.begin(), nodes.end(), [&](Node a, Node b) { return ranks[a] > ranks[b]; });
    struct Span {
      double begin, end;
    };
    std::vector<std::vector<Span>> busy(clusters);
    std::vector<double> done(nodes.size(), 0.0);
    Clusters masters(nodes.size());
    double makespan = 0.0;
    for (const Node node : nodes) {
      const double cost = graph.cost(node);
      double best_begin = infinite;
      for (std::size_t core = 0; core < clusters; ++core) {
        double earliest = 0.0;
        for (const Edge& edge : graph.edges)
          if (edge.target == node)
            earliest = std::max(earliest, done[edge.source] + (masters[edge.source] == core ? 0.0 : latency));
        std::vector<double> times = {earliest};
        for (const Span& span : busy[core])
          if (span.end > earliest) times.push_back(span.end);
        std::sort(times.begin(), times.end());
        for (const double time : times) {
          const bool fits = std::none_of(busy[core].begin(), busy[core].end(), [&](const Span& span) {
            return span.begin < time + cost && span.end > time;
          });
          if (!fits) continue;
          if (time < best_begin) {
            best_begin = time;
            masters[node] = static_cast<Cluster>(core);
          }
          break;
        }
      }
      done[node] = best_begin + cost;
      if (cost > 0.0) busy[masters[node]].push_back({best_begin, done[node]});
      makespan = std::max(makespan, done[node]);
    }
    INFO("turn " << turn);
    CHECK(schedule.makespan == makespan);
    CHECK((schedule.masters == masters));
  }
  const Graph circle = graph_of({{0, 1}, {1, 2}, {2, 1}}, {});
  CHECK_THAT(message_of<ConfigError>([&] { tasks_of(circle); }), Contains("round in a circle"));
}

TEST_CASE("partition: the least load is found among any number", "[partition]") {
  std::mt19937 dice(10);
  for (const std::size_t clusters : {1U, 2U, 3U, 17U, 64U, 100U}) {
    Loads loads(clusters);
    std::vector<double> plain(clusters, 0.0);
    for (int turn = 0; turn < 500; ++turn) {
      const auto least = std::min_element(plain.begin(), plain.end()) - plain.begin();
      REQUIRE(loads.least() == least);
      REQUIRE(loads.most() == *std::max_element(plain.begin(), plain.end()));
      const auto cluster = static_cast<Cluster>(turn % 3 == 0 ? least : static_cast<long>(dice() % clusters));
      const double more = static_cast<double>(dice() % 3);
      loads.add(cluster, more);
      plain[cluster] += more;
    }
  }
}

}  // namespace partition_tests
