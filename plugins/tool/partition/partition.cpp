// Cuts a graph into clusters by its nodes: each edge is in one cluster, a node in all that hold an edge of it. The rules see
// the edges as a stream, once; METIS is beside them. After Ma, Xiao, Willke, Ahmed, Nazarian and Bogdan, "A vertex cut based
// framework for load balancing and parallelism optimization in multi-core systems", MLSys 2021.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <trainyard/data_tool.hpp>
#include <trainyard/host.hpp>

#include "../../shared/partition/machine.hpp"
#include "../../shared/partition/metis.hpp"
#include "../../shared/partition/quality.hpp"
#include "../../shared/partition/stream.hpp"
#include "edge_file.hpp"
#include "lib/printed.hpp"
#include "made_up.hpp"
#include "written.hpp"

/// All but heft, which leaves no assignment of edges.
template <>
struct trainyard::Words<partition::Algorithm> {
  static constexpr auto words = partition::words_of_algorithms<partition::Algorithm::heft>();
};
template <>
struct trainyard::Words<partition::MadeUp> {
  static constexpr std::string_view words[] = {"ba", "rmat"};
};
template <>
struct trainyard::Words<partition::Order> {
  static constexpr const auto& words = partition::order_words;
};

namespace {

using namespace trainyard;
using namespace partition;

enum class Weights : std::uint8_t { given, count };
enum class Least : std::uint8_t { count, weight };

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

template <>
struct trainyard::Words<Weights> {
  static constexpr std::string_view words[] = {"given", "count"};
};
template <>
struct trainyard::Words<Least> {
  static constexpr std::string_view words[] = {"count", "weight"};
};

namespace {

/// What came of an algorithm, or of list scheduling, which leaves no assignment of edges.
struct Outcome {
  std::string name;
  std::optional<Quality> quality;
  std::string hash;
  double seconds = 0.0;
  std::size_t bytes = 0;
  std::optional<double> makespan;
  std::vector<Cluster> assigned, masters;  ///< kept where they are to be written
};

class Partition final : public DataTool {
 public:
  struct Options {
    std::string file, costs, out, nodes_out;
    std::optional<MadeUp> made;
    std::optional<std::size_t> made_nodes, made_degree;
    std::size_t clusters = 8;
    Algorithm algorithm = Algorithm::wb_libra;
    std::vector<Algorithm> beside = {Algorithm::libra, Algorithm::wb_powergraph, Algorithm::powergraph,
                                     Algorithm::hdrf,  Algorithm::dbh,           Algorithm::random,
                                     Algorithm::metis};
    double lambda = 1.0, hdrf_lambda = 1.0;
    Order order = Order::given;
    Weights edge_weights = Weights::given;
    Least metis_cuts = Least::count;
    std::optional<double> latency;
    std::size_t threads = 1;
    std::uint64_t seed = 0;
  };
  static void describe(Manifest<Options>& m);
  explicit Partition(const Options& options) : options_(options) {}

  Report run_on_data(DataWorkshop& shop) override;

 private:
  void check_options() const;
  Graph graph(DataWorkshop& shop);
  std::string place_of_clusters() const;
  std::vector<Algorithm> algorithms() const;
  Outcome outcome_of(const Graph& graph, const Tasks* tasks, Algorithm algorithm,
                     const Settings& settings) const;
  Outcome scheduled(const Tasks& tasks) const;
  void run_tasks(DataWorkshop& shop, std::size_t tasks, const std::function<void(std::size_t)>& task);
  void warn_if_uneven(const Outcome& chosen);
  void add_facts(Report& report, const Graph& graph, const Settings& settings, const Tasks* tasks) const;

  Options options_;
  std::atomic<bool> stop_ = false;
};

void Partition::describe(Manifest<Options>& m) {
  m.name("partition")
      .version("1.0.0")
      .summary(
          "Cuts a graph into clusters of equal weight that share few nodes, by rules that see each edge "
          "once.");
  m.option("file", &Options::file,
           "edges of the graph, a line an edge: two nodes, and its weight if there is one; or the same in "
           "binary; "
           "empty: the graph is made up. `trainyard partition graph.edges` sets it")
      .file();
  m.option(
       "costs", &Options::costs,
       "file of what it costs to compute each node, a number a line; it says how many nodes there are, those "
       "without edges too; empty: 1 each, and those that edges name")
      .file();
  m.option(
      "made", &Options::made,
      "made-up graph: ba, where nodes come with edges to those that have many; rmat; where it is absent, and "
      "there is no file, ba");
  m.option("made_nodes", &Options::made_nodes,
           "nodes of a made-up graph, of rmat a power of 2; where it is absent 2048")
      .range(2, 2147483648.0);
  m.option("made_degree", &Options::made_degree,
           "edges of a made-up graph by each node; where it is absent 3")
      .range(1, 100'000);
  m.option("clusters", &Options::clusters, "clusters to cut into")
      .range(1, static_cast<double>(most_clusters));
  m.option(
      "algorithm", &Options::algorithm,
      "the one whose clusters are written. Of the names, w_ measures load by weight and not by the number of "
      "edges, and wb_ bounds it as well; metis sees the whole graph");
  m.option("beside", &Options::beside, "algorithms to compare it with");
  m.option("lambda", &Options::lambda,
           "the bound of wb_, in means of the clusters' load; below 1 it is as 1, and as many as there are "
           "clusters bind nothing")
      .min(0);
  m.option("hdrf_lambda", &Options::hdrf_lambda, "weight of balance in the score of hdrf").min(0);
  m.option("metis_cuts", &Options::metis_cuts,
           "metis makes the number of the edges that it cuts least, or their weight");
  m.option(
      "order", &Options::order,
      "in which edges are seen; bfs: as a walk from the lowest node reaches them; degrees: ascending by the "
      "degrees of their ends, as ebv is meant. metis sees them all at once");
  m.option("edge_weights", &Options::edge_weights, "as they are given, or 1 each");
  m.option(
       "latency", &Options::latency,
       "simulates a machine of a core a cluster, which runs the nodes and on which a value takes so long to "
       "another core, in units of costs; metis, heft and random are then beside the others; absent: none")
      .min(0);
  m.option(
      "out", &Options::out,
      "file to write the cluster of each edge to, a line an edge; empty: clusters.txt in the tool's folder");
  m.option("nodes_out", &Options::nodes_out,
           "file to write a line a node to: the cluster that computes it, and those that have a copy; empty: "
           "none");
  m.option("threads", &Options::threads, "of which each runs an algorithm; 0: one a processor").max(1024);
  m.option("seed", &Options::seed, "of made-up graphs, of their order, of hashes and of metis")
      .max(9007199254740991.0);
}

void Partition::check_options() const {
  if (!options_.file.empty() && (options_.made || options_.made_nodes || options_.made_degree))
    throw ConfigError(
        "made, made_nodes and made_degree are of a made-up graph, and there is a file: leave one out");
  if (options_.file.empty() && !options_.costs.empty())
    throw ConfigError("costs are those of the nodes of a file: give file as well, or leave them out");
  for (const std::string& path : {options_.out, options_.nodes_out}) {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder))
      throw DataError(path + " cannot be written: there is no folder " + folder.string() + "; make it");
  }
}

/// Runs on the host's threads; the loop thread shows progress and hears of signals.
void Partition::run_tasks(DataWorkshop& shop, std::size_t tasks,
                          const std::function<void(std::size_t)>& task) {
  const std::size_t asked = options_.threads > 0 ? options_.threads : std::thread::hardware_concurrency();
  const std::size_t threads = std::clamp<std::size_t>(asked, 1, std::max<std::size_t>(tasks, 1));
  std::atomic<std::size_t> next = 0;
  std::size_t ended = 0;
  std::exception_ptr error;
  std::mutex mutex;
  std::condition_variable end;
  const auto work = [&](const std::stop_token&) {
    std::exception_ptr caught;
    try {
      for (std::size_t i = next++; i < tasks && !stop_; i = next++) task(i);
    } catch (...) {
      caught = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    if (caught && !error) error = caught;
    ++ended;
    end.notify_one();
  };
  std::vector<std::shared_ptr<void>> handles;
  for (std::size_t i = 0; i < threads; ++i) handles.push_back(host().thread("partition", work));
  {
    std::unique_lock lock(mutex);
    while (!end.wait_for(lock, std::chrono::milliseconds(50), [&] { return ended == threads; })) {
      lock.unlock();
      shop.progress(static_cast<std::int64_t>(std::min(next.load(), tasks)),
                    static_cast<std::int64_t>(tasks));
      if (shop.stopping()) stop_ = true;
      lock.lock();
    }
  }
  handles.clear();
  if (shop.stopping()) stop_ = true;
  if (error && !stop_) std::rethrow_exception(error);
}

Graph Partition::graph(DataWorkshop& shop) {
  Graph graph;
  if (!options_.file.empty())
    run_tasks(shop, 1, [&](std::size_t) { graph = read_graph(options_.file, options_.costs, stop_); });
  else
    graph = make_up(options_.made.value_or(MadeUp::ba), options_.made_nodes.value_or(2048),
                    options_.made_degree.value_or(3), options_.seed,
                    [&](std::size_t tasks, const auto& task) { run_tasks(shop, tasks, task); });
  if (stop_ || options_.edge_weights == Weights::given) return graph;
  graph.weights = {};
  count(graph, graph.degrees.size());
  return graph;
}

std::string Partition::place_of_clusters() const {
  if (!options_.out.empty()) return options_.out;
  const std::filesystem::path folder = std::filesystem::path(host().run().directory) / "tools/partition";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw DataError(folder.string() + ": cannot be made: " + error.message());
  return folder / "clusters.txt";
}

/// That which was chosen, then the others, each once. A table of speed-ups has METIS and random among them.
std::vector<Algorithm> Partition::algorithms() const {
  std::vector<Algorithm> wanted = {options_.algorithm};
  wanted.insert(wanted.end(), options_.beside.begin(), options_.beside.end());
  if (options_.latency) wanted.insert(wanted.end(), {Algorithm::metis, Algorithm::random});
  std::vector<Algorithm> all;
  for (const Algorithm each : wanted)
    if (std::find(all.begin(), all.end(), each) == all.end()) all.push_back(each);
  return all;
}

Outcome Partition::outcome_of(const Graph& graph, const Tasks* tasks, Algorithm algorithm,
                              const Settings& settings) const {
  const auto begin = std::chrono::steady_clock::now();
  Outcome outcome;
  outcome.name = word_of(algorithm);
  Assigned made;
  if (algorithm == Algorithm::metis) {
    NodesCut cut = cut_by_metis(graph, options_.metis_cuts == Least::weight, settings);
    made = std::move(cut.edges);
    outcome.masters = std::move(cut.masters);
  } else {
    made = stream(graph, algorithm, settings);
  }
  outcome.seconds = seconds_since(begin);
  if (made.clusters.empty()) return outcome;  // interrupted
  outcome.bytes = made.bytes;
  outcome.quality = quality_of(graph, made.clusters, settings.clusters);
  outcome.hash = hash_of(made.clusters);
  const bool is_written = algorithm == options_.algorithm;
  if (outcome.masters.empty() && (tasks != nullptr || (is_written && !options_.nodes_out.empty())))
    outcome.masters = masters_of(graph, made.clusters, settings.clusters);
  if (tasks != nullptr)
    outcome.makespan = makespan_of(*tasks, outcome.masters, settings.clusters, *options_.latency);
  if (is_written)
    outcome.assigned = std::move(made.clusters);
  else
    outcome.masters = {};
  return outcome;
}

Outcome Partition::scheduled(const Tasks& tasks) const {
  const auto begin = std::chrono::steady_clock::now();
  Outcome outcome;
  outcome.name = "heft";
  const Schedule schedule = schedule_by_heft(tasks, options_.clusters, *options_.latency, stop_);
  outcome.seconds = seconds_since(begin);
  outcome.makespan = schedule.makespan;
  return outcome;
}

void Partition::warn_if_uneven(const Outcome& chosen) {
  constexpr double uneven = 1.5;
  const Quality& quality = *chosen.quality;
  if (quality.weight_imbalance <= uneven) return;
  host().log(
      LogLevel::warning,
      lib::printed("%s gives one cluster %.2f times the mean weight: a replication of %.3f says little "
                   "beside that",
                   chosen.name.c_str(), quality.weight_imbalance, quality.replication));
}

void Partition::add_facts(Report& report, const Graph& graph, const Settings& settings,
                          const Tasks* tasks) const {
  std::string name = options_.file;
  if (name.empty())
    name = "made up: " + std::string(Words<MadeUp>::words[options_.made == MadeUp::rmat ? 1 : 0]);
  report.facts.emplace_back("graph", name);
  report.facts.emplace_back("nodes", static_cast<std::int64_t>(graph.nodes));
  report.facts.emplace_back("edges", static_cast<std::int64_t>(graph.edges.size()));
  report.facts.emplace_back("weight", graph.total_weight);
  report.facts.emplace_back("largest weight", graph.largest_weight);
  report.facts.emplace_back("most edges of a node", static_cast<std::int64_t>(*std::max_element(
                                                        graph.degrees.begin(), graph.degrees.end())));
  report.facts.emplace_back("clusters", static_cast<std::int64_t>(settings.clusters));
  report.facts.emplace_back("bound of wb_", bound_of(graph, settings));
  if (tasks == nullptr) return;
  report.facts.emplace_back("machine", "simulated, not measured: " + std::to_string(settings.clusters) +
                                           " serial cores, latency " + lib::shortest(*options_.latency) +
                                           " between any two, no contention");
  report.facts.emplace_back("simulated, one core", tasks->total);
  report.facts.emplace_back("simulated, longest way", tasks->longest);
  report.facts.emplace_back("simulated, no less than", tasks->bound(settings.clusters));
}

Report Partition::run_on_data(DataWorkshop& shop) {
  check_options();
  const std::string place = place_of_clusters();
  const auto begin = std::chrono::steady_clock::now();
  const Graph graph = this->graph(shop);
  if (stop_) return {};
  if (options_.clusters > graph.edges.size())
    throw ConfigError("clusters is " + std::to_string(options_.clusters) + ", and the graph has " +
                      std::to_string(graph.edges.size()) + " edges: expected at most as many");
  std::optional<Tasks> tasks;
  if (options_.latency) tasks = tasks_of(graph);
  const Tasks* const simulated = tasks ? &*tasks : nullptr;
  const std::vector<std::uint32_t> order = order_of(graph, options_.order, options_.seed);
  const Settings settings{options_.clusters, options_.lambda, options_.hdrf_lambda,
                          options_.seed,     order,           &stop_};
  const double before = seconds_since(begin);

  const std::vector<Algorithm> wanted = algorithms();
  std::vector<Outcome> outcomes(wanted.size() + (tasks ? 1 : 0));
  run_tasks(shop, outcomes.size(), [&](std::size_t i) {
    outcomes[i] = i < wanted.size() ? outcome_of(graph, simulated, wanted[i], settings) : scheduled(*tasks);
  });
  if (stop_) return {};

  Report report;
  report.facts.emplace_back("file", place);
  add_facts(report, graph, settings, simulated);
  report.facts.emplace_back("seconds ahead of the algorithms", before);
  report.columns = {"algorithm",
                    "replication",
                    "imbalance by weight",
                    "imbalance by count",
                    "communication",
                    "largest load",
                    "hash",
                    "seconds",
                    "edges a second",
                    "bytes an edge"};
  if (tasks) report.columns.insert(report.columns.end(), {"simulated makespan", "simulated speed-up"});
  const auto edges = static_cast<double>(graph.edges.size());
  for (const Outcome& each : outcomes) {
    std::vector<Value> row = {each.name};
    if (const std::optional<Quality>& found = each.quality)
      row.insert(row.end(), {found->replication, found->weight_imbalance, found->count_imbalance,
                             found->communication, found->largest_load, each.hash, each.seconds,
                             edges / each.seconds, static_cast<double>(each.bytes) / edges});
    else
      row.insert(row.end(), {"", "", "", "", "", "", each.seconds, "", ""});
    if (tasks) {
      if (*each.makespan < tasks->bound(settings.clusters) * (1.0 - 1e-9))
        throw PluginError("the simulation of " + each.name +
                          " is faster than any machine can be: it is wrong");
      row.insert(row.end(), {*each.makespan, tasks->total / *each.makespan});
    }
    report.rows.push_back(std::move(row));
  }
  const Outcome& chosen = outcomes.front();
  warn_if_uneven(chosen);
  if (!options_.nodes_out.empty())
    write_nodes(options_.nodes_out, graph, chosen.assigned, chosen.masters, settings.clusters);
  write_assignment(place, chosen.assigned);
  return report;
}

}  // namespace

TRAINYARD_PLUGIN(Partition)
