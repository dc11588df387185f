// Hands on a cheaper graph of the same network, which equality saturation finds and which is faster as a whole by measurement; the
// graph that it was given where none is. Yang et al., "Equality Saturation for Tensor Graph Superoptimization", MLSys 2021.
#include <filesystem>
#include <mutex>
#include <optional>

#include <trainyard/context.hpp>
#include <trainyard/error.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/host.hpp>
#include <trainyard/mixins/reads_run_file.hpp>
#include <trainyard/ranks.hpp>
#include <trainyard/transform.hpp>

#include "lib/printed.hpp"
#include "lib/read_file.hpp"
#include "run_facts.hpp"
#include "saved_plan.hpp"
#include "search_options.hpp"
#include "weights.hpp"

namespace {

using namespace trainyard;
using namespace tensat;
using lib::printed;

class Tensat final : public Transform, public ReadsRunFile {
 public:
  struct Options : SearchOptions {
    std::string plan;
    double least = 1e6;
  };
  static void describe(Manifest<Options>& m) {
    m.name("tensat").version("1.0.0").summary(
        "Puts a cheaper graph of the same network in its place, where one is found and is faster by "
        "measurement.");
    m.needs("graph");
    describe_search(m);
    m.option("use", &Options::use, "what passes are timed: forward and backward, or forward alone");
    m.option("plan", &Options::plan,
             "file of a choice, as `trainyard tensat` writes it, in place of a search")
        .file();
    m.option("least", &Options::least,
             "multiply-adds of a pass; a network of fewer stays as it is, as times of such are mostly noise")
        .min(0.0);
    m.hook<&Tensat::tell>(Event::model_ready);
    m.hook<&Tensat::arrive>(Event::swap_in);
  }
  explicit Tensat(const Options& options) : options_(options) {}

  void read_run_file(const Table& run) const override {
    const std::scoped_lock lock(access_);
    facts_ = facts_of(run, options_.use == Use::training);
  }

  std::unique_ptr<Network> apply(std::unique_ptr<Network> network, const ModelContext&) const override {
    const std::scoped_lock lock(access_);
    const Graph& graph = *network->graph();
    chosen_ = choice(graph);
    if (!chosen_->found.taken) return network;
    Graph made = graph_of(graph, chosen_->found.program);
    joined_ = lay_behind_each_other(made);
    return std::make_unique<GraphNetwork>(std::move(made));
  }

  /// Says what was chosen, and keeps it with the run.
  void tell(StepContext&) {
    const std::scoped_lock lock(access_);
    if (!chosen_) return;
    const std::string text =
        (chosen_->found.taken ? "another graph is taken, " : "the graph stays, ") + chosen_->found.reason;
    host().log(LogLevel::info, text + figures(chosen_->found));
    host().journal(chosen_->found.taken ? "took another graph" : "left the graph as it is",
                   chosen_->found.reason);
    const std::string file = own_file();
    if (chosen_->key.graph.empty() || file.empty() ||
        (host().run().ranks != nullptr && host().run().ranks->rank() != 0))
      return;
    if (lib::read_file(file) != text_of(*chosen_)) write_file(file, text_of(*chosen_));
  }

  /// The network has taken the tensors of the one before it, which lie where they lay.
  void arrive(StepContext& context) {
    tell(context);
    if (chosen_ && chosen_->found.taken) lay_behind_each_other(context.network());
  }

 private:
  /// Where the choice of the run lies; empty where the run has no folder.
  std::string own_file() const {
    const std::string& folder = host().run().directory;
    std::error_code error;
    return !folder.empty() && std::filesystem::is_directory(folder, error) ? folder + "/tensat.json" : "";
  }

  static SavedPlan left(std::string reason) {
    SavedPlan plan;
    plan.found.reason = std::move(reason);
    return plan;
  }

  SavedPlan choice(const Graph& graph) const {
    if (!options_.plan.empty()) return of_file(graph);
    if (!facts_) return left("as nobody said which run it is for");
    const PlanKey key = key_of(graph, facts_->way, search_of(options_));
    if (const std::string file = own_file(); !file.empty())
      if (const auto text = lib::read_file(file)) {
        SavedPlan plan = read_plan(*text, file);
        // What a run began with it goes on with, whatever machine and version it is on now.
        if (plan.key.graph == key.graph && plan.key.search == key.search) return plan;
      }
    if (!facts_->obstacle.empty()) return left("as " + facts_->obstacle);
    double products = 0.0;
    for (const Node& node : graph.nodes) products += static_cast<double>(cost(graph, node).multiply_adds);
    products *= static_cast<double>(facts_->way.samples);
    if (products < options_.least)
      return left(printed("as a pass has %.3g multiply-adds, fewer than the %.3g of `least`", products,
                          options_.least));
    return searched(graph, key);
  }

  SavedPlan of_file(const Graph& graph) const {
    const auto text = lib::read_file(options_.plan);
    if (!text) throw ConfigError("plan: " + options_.plan + " cannot be read");
    SavedPlan plan = read_plan(*text, options_.plan);
    if (plan.key.graph != hash_of(graph))
      throw ConfigError("plan: " + options_.plan + " is of another network (" + plan.key.graph +
                        "; this one is " + hash_of(graph) + "): run `trainyard tensat` on this run");
    return plan;
  }

  /// The first search for a key decides for all runs on this machine: times are never the same twice, and two runs of one file are to be.
  SavedPlan searched(const Graph& graph, const PlanKey& key) const {
    try {
      const Shared shared(shared_folder());
      if (auto known = shared.find(key)) return *std::move(known);
      host().log(LogLevel::info,
                 "looks for a cheaper graph of " + std::to_string(graph.nodes.size()) + " nodes");
      PriceTable prices = shared.prices(key.threads);
      SavedPlan plan{key, find_cheaper(graph, facts_->way, search_of(options_), prices)};
      shared.keep(prices, key.threads);
      shared.keep(plan);
      return plan;
    } catch (const DataError& error) {
      host().log(LogLevel::warning, error.what());
      return left("as a choice cannot be kept: " + std::string(error.what()));
    }
  }

  std::string figures(const Found& found) const {
    if (found.iterations == 0) return "";
    std::string text = printed(
        "; %zu nodes in %zu classes by %zu rules, %d iterations (%s), explored in %.2f s, priced in %.2f s, "
        "extracted in "
        "%.2f s by %s; solver: %s",
        found.nodes, found.classes, found.rules, found.iterations, found.stop.c_str(), found.explored,
        found.measuring, found.extracted, found.from.c_str(), found.solver.c_str());
    if (found.gap > 0.0) text += printed(", gap %.2g", found.gap);
    if (found.taken) {
      text += "; nodes that are in others now:";
      for (const std::string& each : found.merged) text += " " + each;
      text += printed("; %zu weights joined where they lie", joined_);
    }
    return text;
  }

  Options options_;
  mutable std::mutex access_;
  mutable std::optional<tensat::RunFacts> facts_;
  mutable std::optional<SavedPlan> chosen_;  ///< of the last network; all have the same
  mutable std::size_t joined_ = 0;
};

}  // namespace

TRAINYARD_PLUGIN(Tensat)
