// What pruning did to a network beyond its accuracy on clean data (Liebenwein et al., "Lost in Pruning: The Effects of Pruning
// Neural Networks beyond Test Accuracy", MLSys 2021): how near pruned networks are to their parent, how much of it can be
// pruned on noisy and corrupted data, which pixels they go by, which classes they lose.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <trainyard/dataset.hpp>
#include <trainyard/host.hpp>
#include <trainyard/model.hpp>
#include <trainyard/tool.hpp>

#include "back_select.hpp"
#include "findings.hpp"
#include "lib/printed.hpp"

namespace {

using namespace trainyard;
using namespace audit;
using corrupted::Corruption;

/// Adds the seconds of its life to a sum.
class Timed {
 public:
  explicit Timed(double& sum) : sum_(sum) {}
  ~Timed() { sum_ += std::chrono::duration<double>(Clock::now() - begun_).count(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& sum_;
  Clock::time_point begun_ = Clock::now();
};

struct BackSelectOptions {
  std::int64_t images = 0;
  double keep = 0.1;

  static void describe(Fields<BackSelectOptions>& m) {
    m.option("images", &BackSelectOptions::images, "images whose pixels are taken out one by one; 0: none")
        .min(0);
    m.option("keep", &BackSelectOptions::keep, "share of the pixels that are left in the end")
        .above(0.0)
        .max(1.0);
  }
};

class AuditPruned final : public Tool {
 public:
  struct Options {
    std::vector<std::string> data;
    std::string yardstick;
    PluginList<Model> models;
    std::string choose, report;
    double delta = 0.005;
    std::vector<double> noise = {0.0};
    std::int64_t draws = 10;
    std::vector<Corruption> corruptions;
    std::vector<std::int64_t> severity = {3};
    std::int64_t images = 0;
    BackSelectOptions backselect;
    std::uint64_t seed = 0;
    std::int64_t batch_size = 500;
    std::string out;
  };
  static void describe(Manifest<Options>& m);
  explicit AuditPruned(const Options& options) : options_(options) {}

  Report run(Workshop& shop) override;

 private:
  void check_options(Workshop& shop) const;
  void choose_splits(Workshop& shop);
  void require_plain_evaluations(Workshop& shop) const;
  void take_networks(Workshop& shop);
  void add_network(const std::string& name, std::unique_ptr<Network> network);
  Samples read(Workshop& shop, const std::string& split) const;
  std::vector<Distribution> distributions() const;
  /// Gives nothing where a signal came.
  void look_at(Workshop& shop, const std::string& split, const Samples& samples,
               const Distribution& distribution);
  void choose_pixels(Workshop& shop, const Samples& samples);
  std::vector<Shared> shared_pixels(Workshop& shop, const Samples& samples, std::size_t chooser);
  std::vector<double> confidence(std::size_t network, const at::Tensor& images, at::IntArrayRef shape,
                                 std::int64_t label) const;
  at::Tensor parents_logits(const at::Tensor& inputs) {
    const Timed timed(parents_);
    return findings_.networks.front().logits(inputs, device());
  }
  void tell_progress(Workshop& shop, std::int64_t more) { shop.progress(done_ += more, total_); }
  bool needs_pixels() const { return !options_.corruptions.empty(); }
  std::string folder_of(Workshop& shop) const;
  Report report_of(Workshop& shop, const std::string& folder) const;
  void add_facts(Report& report) const;
  void add_damage(Report& report, const Finding& clean) const;
  std::vector<Value> row_of(const Finding& reported) const;

  at::Device device() const { return at::Device(host().run().device); }

  Options options_;
  std::string choose_, report_;  ///< splits
  Findings findings_;
  std::int64_t classes_ = 0, done_ = 0, total_ = 0;
  std::int64_t copies_ = 0;               ///< of samples that were looked at
  double seconds_ = 0.0, parents_ = 0.0;  ///< that took, and the parent's forwards in it
};

void AuditPruned::describe(Manifest<Options>& m) {
  m.name("audit_pruned")
      .version("1.0.0")
      .summary("Compares pruned networks with their parent on clean, noisy and corrupted data.");
  m.needs("fp32");
  m.option("data", &Options::data,
           "the pruned networks: folders of runs or checkpoints, or files of weights; their tensors may be "
           "smaller "
           "than the parent's");
  m.option(
      "yardstick", &Options::yardstick,
      "a dense network that was trained by itself, as the pruned ones are given: how far networks of equal "
      "worth are apart; empty: none");
  m.option("models", &Options::models,
           "pruned networks with graphs of their own, as in [{ type = \"onnx\", file = \"small.onnx\" }]");
  m.option(
      "choose", &Options::choose,
      "split on which ratios are chosen; empty: val where that is not the split reported on, else that one, "
      "as in the paper");
  m.option("report", &Options::report,
           "split on which the chosen ratio and everything else is reported; empty: test, of a run without "
           "it val");
  m.option("delta", &Options::delta, "errors up to that much above the parent's are no loss").min(0.0);
  m.option("noise", &Options::noise, "largest numbers of uniform noise on what the networks see; 0: clean")
      .min(0.0);
  m.option("draws", &Options::draws, "noisy copies of each sample").range(1, 1 << 20);
  m.option("corruptions", &Options::corruptions,
           "of pixels in [0, 1], ahead of the data's mean and std, as the dataset `corrupted` makes them");
  m.option("severity", &Options::severity, "severities of each corruption").range(1, corrupted::most_severe);
  m.option("images", &Options::images, "samples of a split, its first; 0: all").min(0);
  m.option("backselect", &Options::backselect, "BackSelect: pixels that the networks go by");
  m.option("seed", &Options::seed, "of noise and corruptions").max(9007199254740991.0);
  m.option("batch_size", &Options::batch_size, "samples that a network is given at a time").range(1, 1 << 20);
  m.option("out", &Options::out, "folder for the tables, in CSV; empty: the tool's folder below the run");
}

void AuditPruned::check_options(Workshop& shop) const {
  if (std::ranges::find(options_.corruptions, Corruption::uniform_noise) != options_.corruptions.end())
    throw ConfigError("corruptions: uniform_noise has no severity; give its numbers as noise");
  if (shop.network().graph() == nullptr)
    throw ConfigError("the model has no graph, of which the pruned networks are made: audit one that has");
}

void AuditPruned::choose_splits(Workshop& shop) {
  const std::vector<std::string> splits = shop.splits();
  const auto has = [&](const std::string& split) { return std::ranges::find(splits, split) != splits.end(); };
  report_ = !options_.report.empty() ? options_.report : has("test") ? "test" : "val";
  choose_ = !options_.choose.empty() ? options_.choose : has("val") ? "val" : report_;
  std::string list;
  for (const std::string& each : splits) list += (list.empty() ? "" : ", ") + each;
  for (const std::string& split : {choose_, report_}) {
    if (!has(split))
      throw ConfigError("asks for [data." + split + "], and the run has " +
                        (list.empty() ? "no split" : list) +
                        " to evaluate on: set choose and report, or give the run that split");
    refuse_corrupted(shop.config(), split);
  }
}

void AuditPruned::add_network(const std::string& name, std::unique_ptr<Network> network) {
  network->to(device());
  Judged judged{name, std::move(network), nullptr, 0, 0.0};
  judged.network = judged.owned.get();
  judged.parameters = parameters_left(*judged.network);
  const auto parents = static_cast<double>(findings_.networks.front().parameters);
  judged.ratio = 1.0 - static_cast<double>(judged.parameters) / parents;
  findings_.networks.push_back(std::move(judged));
}

void AuditPruned::take_networks(Workshop& shop) {
  const std::int64_t parameters = parameters_left(shop.network());
  findings_.networks.push_back({shop.source(), nullptr, &shop.network(), parameters, 0.0});
  const Graph& graph = *shop.network().graph();
  for (const std::string& path : options_.data) {
    add_network(path, with_weights(graph, weights_file(path)));
    if (findings_.networks.back().ratio <= 0.0)
      host().log(LogLevel::warning,
                 path + " has " + std::to_string(findings_.networks.back().parameters) +
                     " parameters that are not 0, no fewer than the parent: it is not pruned");
  }
  const BatchSchema schema = shop.dataset(report_).schema();
  const auto models = make_plugins(host(), options_.models);
  for (std::size_t i = 0; i < models.size(); ++i)
    add_network("models[" + std::to_string(i) + "]", models[i]->build({schema, options_.seed}));
  findings_.pruned = findings_.networks.size() - 1;
  if (!options_.yardstick.empty())
    add_network(options_.yardstick, with_weights(graph, weights_file(options_.yardstick)));
}

/// A dropout may evaluate layers in its own way, which the pruned networks, made of the graph, would go without.
void AuditPruned::require_plain_evaluations(Workshop& shop) const {
  const std::unique_ptr<Network> plain = shop.network().twin();
  for (const Batch& batch : shop.batches(report_, 1))
    if (!at::equal(shop.network().forward(batch, {}), plain->forward(batch, {})))
      throw ConfigError(
          "[model.dropout] evaluates layers in its own way, which the pruned networks are compared without: "
          "choose another option of it, or leave it out by --set model.dropout.p=0");
}

Samples AuditPruned::read(Workshop& shop, const std::string& split) const {
  const std::vector<Batch> first = shop.batches(split, 1);
  if (first.empty()) throw ConfigError("split \"" + split + "\" has no batch");
  const std::int64_t size = first.front().size();
  const std::vector<Batch> batches =
      shop.batches(split, options_.images == 0 ? INT64_MAX : (options_.images + size - 1) / size);
  Samples samples;
  std::vector<at::Tensor> inputs, labels;
  for (const Batch& batch : batches) {
    if (batch.inputs.size() != 1 || !batch.input().is_floating_point() || !batch.target.defined() ||
        batch.target.dim() != 1 || classes_ == 0)
      throw ConfigError(
          "an audit is of classifiers whose samples are a single field of numbers with one class each; "
          "the run's are others");
    inputs.push_back(batch.input().to(at::kCPU, at::kFloat));
    labels.push_back(batch.target.to(at::kCPU, at::kLong));
    samples.indices.insert(samples.indices.end(), batch.indices.begin(), batch.indices.end());
  }
  const auto all = static_cast<std::int64_t>(samples.indices.size());
  const std::int64_t count = options_.images == 0 ? all : std::min(all, options_.images);
  samples.inputs = at::cat(inputs).narrow(0, 0, count).contiguous();
  samples.labels = at::cat(labels).narrow(0, 0, count).contiguous();
  samples.indices.resize(static_cast<std::size_t>(count));
  if (needs_pixels()) samples.scale = scale_of(shop.config(), split, samples.inputs);
  return samples;
}

std::vector<Distribution> AuditPruned::distributions() const {
  std::vector<Distribution> all(1);  // clean data is what the others are compared with
  for (const double eps : options_.noise)
    if (eps > 0.0)
      all.push_back(
          {"uniform_noise " + lib::shortest(eps), Corruption::uniform_noise, eps, 0, options_.draws});
  for (const Corruption corruption : options_.corruptions)
    for (const std::int64_t severity : options_.severity)
      all.push_back({std::string(corrupted::name_of(corruption)) + " " + std::to_string(severity), corruption,
                     0.0, severity, 1});
  return all;
}

void AuditPruned::look_at(Workshop& shop, const std::string& split, const Samples& samples,
                          const Distribution& distribution) {
  const Timed timed(seconds_);
  Finding finding{split, distribution, std::vector<Outcome>(findings_.networks.size(), Outcome(classes_))};
  const std::int64_t count = samples.inputs.size(0);
  for (std::int64_t draw = 0; draw < distribution.draws; ++draw)
    for (std::int64_t first = 0; first < count; first += options_.batch_size) {
      if (shop.stopping()) return;
      const std::int64_t some = std::min(options_.batch_size, count - first);
      const at::Tensor inputs = inputs_of(distribution, samples, first, some, options_.seed, draw);
      const at::Tensor labels = samples.labels.narrow(0, first, some);
      const at::Tensor parents = parents_logits(inputs);
      if (parents.size(1) != classes_)
        throw ConfigError("the network gives " + std::to_string(parents.size(1)) +
                          " numbers a sample, and the data has " + std::to_string(classes_) +
                          " classes: an audit is of classifiers");
      const Said said(parents);
      finding.outcomes.front().add(said, said, labels);
      for (std::size_t i = 1; i < findings_.networks.size(); ++i)
        finding.outcomes[i].add(findings_.networks[i].logits(inputs, device()), said, labels);
      copies_ += some;
      tell_progress(shop, some);
    }
  findings_.all.push_back(std::move(finding));
}

std::vector<double> AuditPruned::confidence(std::size_t network, const at::Tensor& images,
                                            at::IntArrayRef shape, std::int64_t label) const {
  std::vector<std::int64_t> sizes = shape.vec();
  sizes.insert(sizes.begin(), images.size(0));
  const at::Tensor logits = findings_.networks[network].logits(images.reshape(sizes), device());
  const at::Tensor sure = at::softmax(logits.to(at::kDouble), 1).select(1, label).contiguous();
  return {sure.const_data_ptr<double>(), sure.const_data_ptr<double>() + sure.numel()};
}

/// Of the pixels that network `chooser` goes by: how sure each network is of the true class.
std::vector<Shared> AuditPruned::shared_pixels(Workshop& shop, const Samples& samples, std::size_t chooser) {
  const at::IntArrayRef shape = samples.inputs.sizes().slice(1);
  const std::int64_t channels = shape.size() == 3 ? shape[0] : 1;
  const std::int64_t pixels = samples.inputs[0].numel() / channels;
  const std::int64_t images = std::min(options_.backselect.images, samples.inputs.size(0));
  const auto kept =
      static_cast<std::int64_t>(std::ceil(options_.backselect.keep * static_cast<double>(pixels) - 1e-9));
  std::vector<Shared> all;
  for (std::size_t judge = 0; judge < findings_.networks.size(); ++judge)
    all.push_back({chooser, judge, images, kept, 0.0});
  for (std::int64_t i = 0; i < images; ++i) {
    const at::Tensor image = samples.inputs[i].reshape({channels, pixels});
    const at::Tensor said = findings_.networks[chooser].logits(samples.inputs.narrow(0, i, 1), device());
    const auto predicted = said.argmax(1).item<std::int64_t>();
    const Selection selection = back_select(
        image, [&](const at::Tensor& some) { return confidence(chooser, some, shape, predicted); },
        options_.batch_size, [&] { return shop.stopping(); });
    if (shop.stopping()) return {};
    findings_.evaluations += selection.evaluations;
    const at::Tensor left = with_last(image, selection.order, kept).unsqueeze(0);
    const auto label = samples.labels[i].item<std::int64_t>();
    for (Shared& each : all)
      each.confidence += confidence(each.judge, left, shape, label).front() / static_cast<double>(images);
    tell_progress(shop, selection.evaluations);
  }
  return all;
}

void AuditPruned::choose_pixels(Workshop& shop, const Samples& samples) {
  for (std::size_t chooser = 0; chooser < findings_.networks.size() && !shop.stopping(); ++chooser) {
    const std::vector<Shared> all = shared_pixels(shop, samples, chooser);
    findings_.shared.insert(findings_.shared.end(), all.begin(), all.end());
  }
}

void AuditPruned::add_facts(Report& report) const {
  const auto add = [&](const std::string& name, double mean, double least) {
    report.facts.emplace_back("potential over " + name + ", mean", mean);
    report.facts.emplace_back("potential over " + name + ", least", least);
  };
  for (const char* group : {"noise", "corruptions"}) {
    std::vector<double> potentials;
    for (const Finding& each : findings_.all)
      if (each.split == choose_ && !each.distribution.clean() &&
          each.distribution.on_pixels() == (group == std::string("corruptions")))
        potentials.push_back(findings_.potential_of(each));
    if (!potentials.empty())
      add(group,
          std::accumulate(potentials.begin(), potentials.end(), 0.0) / static_cast<double>(potentials.size()),
          *std::ranges::min_element(potentials));
  }
  // A point a network: its excess error, the mean over all distributions but the clean one.
  const Finding* const clean = findings_.find(report_, "clean");
  std::vector<AtRatio> points;
  std::int64_t count = 0;
  for (const Finding& each : findings_.all) {
    if (each.split != report_ || each.distribution.clean()) continue;
    const std::vector<AtRatio> some = findings_.excess(each, *clean);
    points.resize(some.size());
    for (std::size_t i = 0; i < some.size(); ++i)
      points[i] = {some[i].ratio, points[i].value + some[i].value};
    ++count;
  }
  if (count == 0 || points.empty()) return;
  for (AtRatio& each : points) each.value /= static_cast<double>(count);
  const Slope slope = slope_through_origin(points);
  report.facts.emplace_back("excess error a ratio of 1", slope.slope);
  report.facts.emplace_back("its 95 % interval, low", slope.low);
  report.facts.emplace_back("its 95 % interval, high", slope.high);
}

/// Tells which class the most pruned network loses the most of.
void AuditPruned::add_damage(Report& report, const Finding& clean) const {
  std::size_t most = 1, worst = 0;
  for (std::size_t i = 1; i <= findings_.pruned; ++i)
    if (findings_.networks[i].ratio > findings_.networks[most].ratio) most = i;
  const auto damage = [&](std::size_t label) {
    return clean.outcomes[most].error_of_class(label) - clean.outcomes.front().error_of_class(label);
  };
  for (std::size_t label = 0; label < clean.outcomes.front().classes(); ++label)
    if (damage(label) > damage(worst)) worst = label;
  report.facts.emplace_back("largest ratio", findings_.networks[most].ratio);
  report.facts.emplace_back("its most damaged class", static_cast<std::int64_t>(worst));
  report.facts.emplace_back("share lost of that class", damage(worst));
  report.facts.emplace_back("its calibration error", clean.outcomes[most].calibration_error());
}

std::vector<Value> AuditPruned::row_of(const Finding& reported) const {
  const Finding& chosen = *findings_.find(choose_, reported.distribution.name);
  const Finding& clean = *findings_.find(report_, "clean");
  const double ratio = findings_.potential_of(chosen), parents = reported.outcomes.front().error();
  const Outcome& there = reported.outcomes[findings_.at_ratio(ratio)];
  std::vector<Value> row = {reported.distribution.name, parents};
  if (findings_.has_yardstick()) {
    row.emplace_back(reported.outcomes.back().error());
    row.emplace_back(reported.outcomes.back().distance());
  }
  row.insert(row.end(),
             {ratio, there.error(), there.error() <= parents + findings_.delta + 1e-12 ? "yes" : "no",
              there.match(), there.distance(), findings_.potential_of(reported)});
  const Slope slope = reported.distribution.clean() ? Slope{0.0, 0.0, 0.0}
                                                    : slope_through_origin(findings_.excess(reported, clean));
  row.insert(row.end(), {slope.slope, slope.low, slope.high});
  return row;
}

Report AuditPruned::report_of(Workshop& shop, const std::string& folder) const {
  Report report;
  const Finding& clean = *findings_.find(report_, "clean");
  report.facts = {{"parent", shop.source()},
                  {"parameters", findings_.networks.front().parameters},
                  {"pruned networks", static_cast<std::int64_t>(findings_.pruned)},
                  {"ratios chosen on", choose_ == report_ ? "the same data" : choose_},
                  {"reported on", report_},
                  {"samples", clean.outcomes.front().samples()},
                  {"delta", findings_.delta}};
  add_facts(report);
  if (findings_.pruned > 0) add_damage(report, clean);
  report.facts.emplace_back("calibration error of the parent", clean.outcomes.front().calibration_error());
  if (findings_.evaluations > 0)
    report.facts.emplace_back("evaluations of BackSelect", findings_.evaluations);
  const auto copies = static_cast<double>(copies_);
  report.facts.emplace_back("forwards a second",
                            copies * static_cast<double>(findings_.networks.size()) / seconds_);
  report.facts.emplace_back("forwards a second of the parent alone", copies / parents_);
  report.facts.emplace_back("tables", folder);
  report.columns = {"distribution", "parent's error"};
  if (findings_.has_yardstick())
    report.columns.insert(report.columns.end(), {"yardstick's error", "its distance"});
  report.columns.insert(report.columns.end(), {"potential", "error there", "holds", "match", "distance",
                                               "potential on " + report_, "excess slope", "low", "high"});
  for (const Finding& each : findings_.all)
    if (each.split == report_) report.rows.push_back(row_of(each));
  return report;
}

std::string AuditPruned::folder_of(Workshop& shop) const {
  if (options_.out.empty()) return shop.folder();
  std::error_code error;
  std::filesystem::create_directories(options_.out, error);
  if (error) throw DataError(options_.out + ": cannot be made: " + error.message());
  return options_.out;
}

Report AuditPruned::run(Workshop& shop) {
  const at::NoGradGuard no_grad;
  check_options(shop);
  choose_splits(shop);
  require_plain_evaluations(shop);
  findings_.delta = options_.delta;
  classes_ = shop.dataset(report_).schema().classes;
  take_networks(shop);
  std::vector<std::pair<std::string, Samples>> splits = {{report_, read(shop, report_)}};
  if (choose_ != report_) splits.insert(splits.begin(), {choose_, read(shop, choose_)});
  const std::vector<Distribution> all = distributions();
  for (const auto& [split, samples] : splits)
    for (const Distribution& each : all) total_ += each.draws * samples.inputs.size(0);
  const Samples& reported = splits.back().second;
  const std::int64_t images = std::min(options_.backselect.images, reported.inputs.size(0));
  const std::int64_t pixels =
      reported.inputs[0].numel() / (reported.inputs.dim() == 4 ? reported.inputs.size(1) : 1);
  total_ += static_cast<std::int64_t>(findings_.networks.size()) * images * (pixels * (pixels + 1) / 2);
  const std::string folder = folder_of(shop);
  for (const auto& [split, samples] : splits)
    for (const Distribution& each : all) {
      look_at(shop, split, samples, each);
      findings_.write(folder, report_);  // whatever becomes of the process
    }
  if (images > 0) choose_pixels(shop, reported);
  findings_.write(folder, report_);
  if (!shop.stopping()) return report_of(shop, folder);
  host().log(LogLevel::warning, "what was found of " + std::to_string(findings_.all.size()) + " of " +
                                    std::to_string(splits.size() * all.size()) + " distributions is in " +
                                    folder);
  return {};
}

}  // namespace

TRAINYARD_PLUGIN(AuditPruned)
