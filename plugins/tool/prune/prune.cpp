// Prunes a trained network in one go, as one step of a pipeline of pruning and training on: scores weights or filters on a
// few samples, takes the least of them away until the network has the size that is asked for, and writes what is left.
#include <cmath>
#include <map>

#include <ATen/core/grad_mode.h>

#include <trainyard/error.hpp>
#include <trainyard/host.hpp>
#include <trainyard/tool.hpp>

#include "allocation.hpp"
#include "lib/printed.hpp"
#include "sample.hpp"
#include "written.hpp"

namespace {

using namespace trainyard;
using namespace pruning;

constexpr double tolerance = 0.005;  // of the target
constexpr int most_evaluations = 20;

const char* word(Scorer::Of of) {
  return of == Scorer::Of::weights ? "weights" : of == Scorer::Of::filters ? "filters" : "channels";
}

class Prune final : public Tool {
 public:
  struct Options {
    PluginList<Scorer> scorer;
    double ratio = 0.5;
    std::optional<Allocation> allocation;
    std::vector<std::string> layers = {"*"};
    bool cut = true;
    std::int64_t original = 0;
    std::int64_t samples = 0;
    SamplesOf samples_of = SamplesOf::rest;
    std::int64_t batch_size = 32;
    bool evaluate = true;
    std::string out;
  };
  static void describe(Manifest<Options>& m);
  explicit Prune(const Options& options) : options_(options) {}

  Report run(Workshop& shop) override;

 private:
  /// What becomes of a network.
  struct Pruned {
    Solved solved;
    std::vector<NamedTensor> weights;
    std::optional<filters::Kept> kept;
    std::int64_t multiply_adds = 0;
    std::map<std::string, std::int64_t> multiply_adds_of;
  };

  std::unique_ptr<Scorer> scorer();
  Allocation allocation(Scorer::Of of) const;
  Pruned weights(Workshop& shop, const std::vector<PrunedLayer>& layers,
                 const std::vector<LayerScores>& scores, const SampleSet& set, double target);
  Pruned filters(Workshop& shop, const filters::Channels& channels, const std::vector<PrunedLayer>& layers,
                 const std::vector<LayerScores>& scores, Scorer::Of of, double target);

  Options options_;
  std::int64_t original_ = 0;
};

void Prune::describe(Manifest<Options>& m) {
  m.name("prune").version("1.0.0").summary(
      "Takes the weights or filters that matter least out of a trained network.");
  m.needs("graph").needs("no members").needs("no sharded_rows");
  m.option("scorer", &Options::scorer, "what says how much a weight or filter matters").required();
  m.option("ratio", &Options::ratio,
           "share of the network's parameters that is to go, biases and normalisation included")
      .min(0.0)
      .below(1.0);
  m.option("allocation", &Options::allocation,
           "global: the lowest scores of all layers; uniform: the same share of each layer; error: an equal "
           "error of each "
           "layer, by the bound of PFP; where it is absent global for scores of weights, uniform of filters, "
           "error of "
           "channels");
  m.option("layers", &Options::layers, "names of linear and convolutional layers, * and ? allowed");
  m.option("cut", &Options::cut, "filters are cut out of the network; else they stay in it as zeros");
  m.option(
       "original", &Options::original,
       "number of parameters that ratio is a share of, of a network that was cut before; 0: this network's")
      .min(0);
  m.option(
       "samples", &Options::samples,
       "of training data, to look at the layers with; 0: as many as bound the error of all neurons at once")
      .min(0);
  m.option("samples_of", &Options::samples_of,
           "rest: training data that data.train.take leaves out, as far as there is such; take: what it "
           "gives in this command");
  m.option("batch_size", &Options::batch_size, "samples of them at a time").range(1, 1 << 20);
  m.option("evaluate", &Options::evaluate, "metrics before and after");
  m.option("out", &Options::out,
           "folder to write model.safetensors and run.toml to, which trains them on, and kept.json of "
           "filters; empty: the "
           "tool's folder below the run");
}

std::unique_ptr<Scorer> Prune::scorer() {
  if (options_.scorer.tables.size() != 1)
    throw ConfigError("scorer names " + std::to_string(options_.scorer.tables.size()) +
                      " plugins, needs one: scorer = { type = \"magnitude\" }");
  return std::move(make_plugins(host(), options_.scorer).front());
}

Allocation Prune::allocation(Scorer::Of of) const {
  const Allocation usual = of == Scorer::Of::weights   ? Allocation::global
                           : of == Scorer::Of::filters ? Allocation::uniform
                                                       : Allocation::error;
  const Allocation chosen = options_.allocation.value_or(usual);
  if (chosen == Allocation::error && of != Scorer::Of::channels)
    throw ConfigError("allocation = \"error\" goes by scores of channels, as pfp has them, and \"" +
                      options_.scorer.tables.front().find("type")->as<std::string>() + "\" scores " +
                      word(of) + ": take \"global\" or \"uniform\"");
  return chosen;
}

std::map<std::string, double> metrics_of(Workshop& shop) {
  std::map<std::string, double> all;
  for (const std::string& split : shop.splits()) all.merge(shop.evaluate(split));
  return all;
}

/// Puts weights that propagation took away, more than are to go in all, below the others, so that the lowest of them go.
void first_the_idle(std::vector<at::Tensor>& scores, const std::vector<PrunedLayer>& layers) {
  double most = 0.0;
  for (const at::Tensor& each : scores) most = std::max(most, each.max().item<double>());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const at::Tensor idle = layers[i].matrix.eq(0).to(at::kCPU);  // or gone already, with a score below 0
    scores[i] = scores[i].where(idle, scores[i] + (most + 1.0));
  }
}

Prune::Pruned Prune::weights(Workshop& shop, const std::vector<PrunedLayer>& layers,
                             const std::vector<LayerScores>& scores, const SampleSet& set, double target) {
  Network& network = shop.network();
  std::vector<at::Tensor> before, candidates;
  for (const NamedTensor& each : network.parameters()) before.push_back(each.tensor.detach().clone());
  for (std::size_t i = 0; i < layers.size(); ++i)
    candidates.push_back(scores[i].scores.masked_fill(layers[i].matrix.eq(0).to(at::kCPU), -1.0));
  bool propagates = true;
  const auto prune = [&](double share) {
    const at::NoGradGuard untracked;
    const std::vector<NamedTensor> parameters = network.parameters();
    for (std::size_t i = 0; i < before.size(); ++i) parameters[i].tensor.detach().copy_(before[i]);
    const std::vector<at::Tensor> kept = kept_weights(candidates, allocation(Scorer::Of::weights), share);
    for (std::size_t i = 0; i < layers.size(); ++i)
      layers[i].matrix.masked_fill_(kept[i].logical_not().to(layers[i].matrix.device()), 0);
    return propagates ? propagate(network, layers, set) : nonzeros(network);
  };
  std::int64_t whole = prune(1.0);
  if (static_cast<double>(whole) < (1.0 - tolerance) * target) {
    first_the_idle(candidates, layers);
    propagates = false;
    whole = prune(1.0);
  }
  Pruned pruned;
  pruned.solved = solve(prune, whole, target, tolerance * target, most_evaluations);
  pruned.solved.size = prune(pruned.solved.share);
  pruned.weights = shop.weights();
  const Graph& graph = *network.graph();
  for (const Node& node : graph.nodes) pruned.multiply_adds += cost(graph, node).multiply_adds;
  for (const PrunedLayer& layer : layers) {
    const std::int64_t all = cost(graph, graph.nodes[layer.node]).multiply_adds;
    const auto left = static_cast<double>(layer.matrix.count_nonzero().item<std::int64_t>());
    pruned.multiply_adds_of[layer.name] =
        std::llround(static_cast<double>(all) * left / static_cast<double>(layer.matrix.numel()));
    pruned.multiply_adds += pruned.multiply_adds_of[layer.name] - all;
  }
  return pruned;
}

Prune::Pruned Prune::filters(Workshop& shop, const filters::Channels& channels,
                             const std::vector<PrunedLayer>& layers, const std::vector<LayerScores>& scores,
                             Scorer::Of of, double target) {
  const Graph& graph = *shop.network().graph();
  std::vector<FilterGroup> groups = groups_of(channels, layers, scores, of);
  if (groups.empty()) throw ConfigError("the network has no filters that can be cut among these layers");
  std::vector<Reader> readers;
  if (of == Scorer::Of::channels) readers = readers_of(channels, layers, scores);
  Pruned pruned;
  pruned.solved = keep_filters(
      groups, readers, allocation(of),
      [&](const filters::Gone& gone) { return filters::parameters_after(graph, channels, gone); }, target,
      tolerance * target);
  const filters::Gone gone = gone_of(groups);
  filters::mask(graph, channels, gone, shop.weights());
  pruned.weights =
      options_.cut ? filters::cut_tensors(graph, channels, gone, shop.weights()) : shop.weights();
  if (options_.cut) pruned.kept = filters::kept_after(channels, gone);
  const Graph left = filters::cut(graph, channels, gone);
  for (const Node& node : left.nodes) {
    pruned.multiply_adds_of[node.name] = cost(left, node).multiply_adds;
    pruned.multiply_adds += pruned.multiply_adds_of[node.name];
  }
  return pruned;
}

Report Prune::run(Workshop& shop) {
  const std::unique_ptr<Scorer> scorer = this->scorer();
  const Scorer::Of of = scorer->of();
  const Allocation chosen = allocation(of);
  Network& network = shop.network();
  const Graph& graph = *network.graph();
  const filters::Channels channels(graph);
  const std::vector<PrunedLayer> layers = layers_of(network, channels, options_.layers);
  std::int64_t parameters = 0, multiply_adds = 0;
  for (const NamedTensor& each : network.parameters()) parameters += each.tensor.numel();
  for (const Node& node : graph.nodes) multiply_adds += cost(graph, node).multiply_adds;
  original_ = options_.original > 0 ? options_.original : parameters;
  const double target = (1.0 - options_.ratio) * static_cast<double>(original_);
  const SampleSet set =
      draw(shop, host(), options_.samples_of, options_.samples > 0 ? options_.samples : samples_for(graph),
           options_.batch_size);
  if (set.of != options_.samples_of)
    host().log(LogLevel::warning,
               "the samples are training data that the run trains on: let data.train.take = \"first 90%\" "
               "leave some out, or, "
               "where its dataset does not read what is left out, give this command --samples_of take and "
               "another take");
  std::map<std::string, double> before, after;
  if (options_.evaluate) before = metrics_of(shop);
  const std::vector<LayerScores> scores =
      scores_of(*scorer, network, layers, set, shop.loss(), host(), [&] { return shop.stopping(); });
  if (shop.stopping()) return {};
  const Pruned pruned = of == Scorer::Of::weights ? weights(shop, layers, scores, set, target)
                                                  : filters(shop, channels, layers, scores, of, target);
  if (shop.stopping()) return {};
  const double off = std::abs(static_cast<double>(pruned.solved.size) - target) / target;
  if (off > tolerance)
    host().log(LogLevel::warning,
               "the size is " + lib::printed("%.3g", 100.0 * off) + " % off its target" +
                   (of == Scorer::Of::weights ? "" : ", as near as whole filters come to it"));
  if (options_.evaluate) after = metrics_of(shop);
  const std::vector<std::string> files =
      write(options_.out.empty() ? shop.folder() : options_.out, pruned.weights, pruned.kept, shop.config());
  Report report;
  report.facts = {{"weights", shop.source()},
                  {"scorer", options_.scorer.tables.front().find("type")->as<std::string>()},
                  {"scores of", word(of)},
                  {"allocation", std::string(Words<Allocation>::words[static_cast<std::size_t>(chosen)])},
                  {"samples", set.size},
                  {"samples are", set.of == SamplesOf::rest ? "training data that the run does not train on"
                                                            : "training data that data.train.take gives"},
                  {"original", original_},
                  {"target", target},
                  {"size", pruned.solved.size},
                  {"off target", off},
                  {"ratio", 1.0 - static_cast<double>(pruned.solved.size) / static_cast<double>(original_)},
                  {"evaluations", static_cast<std::int64_t>(pruned.solved.evaluations)},
                  {"multiply-adds before", multiply_adds},
                  {"multiply-adds", pruned.multiply_adds}};
  for (const auto& [name, value] : before) report.facts.emplace_back(name + " before", value);
  for (const auto& [name, value] : after) report.facts.emplace_back(name, value);
  for (const std::string& file : files)
    report.facts.emplace_back("wrote " + file.substr(file.rfind('/') + 1), file);
  report.columns = {"layer",        "weights",       "weights left",      "filters",
                    "filters left", "multiply-adds", "multiply-adds left"};
  for (const PrunedLayer& layer : layers) {
    // Filters that are cut are zeros here, and so is what reads them.
    const at::Tensor left = layer.matrix.ne(0);
    const auto kept = pruned.kept ? pruned.kept->find(layer.name) : filters::Kept::const_iterator();
    const std::int64_t outputs = layer.matrix.size(0);
    const std::int64_t rows = pruned.kept
                                  ? (kept == pruned.kept->end() ? outputs : std::ssize(kept->second.kept))
                                  : left.flatten(1).any(1).sum().item<std::int64_t>();
    report.rows.push_back({layer.name, layer.matrix.numel(), left.sum().item<std::int64_t>(), outputs, rows,
                           cost(graph, graph.nodes[layer.node]).multiply_adds,
                           pruned.multiply_adds_of.at(layer.name)});
  }
  return report;
}

}  // namespace

TRAINYARD_PLUGIN(Prune)
