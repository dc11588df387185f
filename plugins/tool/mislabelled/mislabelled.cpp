// Finds samples whose label is likely wrong: those that are unlike the others of their class, by the outlier detectors
// of the verb screen, in what the trained network makes of them ahead of its last layer.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <thread>

#include <ATen/core/grad_mode.h>

#include <trainyard/dataset.hpp>
#include <trainyard/host.hpp>
#include <trainyard/network.hpp>
#include <trainyard/tool.hpp>

#include "../screen/pool.hpp"
#include "../screen/scores_file.hpp"

enum class RowsOf : std::uint8_t { features, inputs };
template <>
struct trainyard::Words<RowsOf> {
  static constexpr std::string_view words[] = {"features", "inputs"};
};

namespace {

using namespace trainyard;
using screen::Matrix;

class Mislabelled final : public Tool {
 public:
  struct Options {
    RowsOf rows = RowsOf::features;
    std::vector<std::string> pool = {"knn:5", "iforest:100"};
    double contamination = 0.05;
    std::string out;
    std::int64_t most = 10, batch_size = 256;
    std::size_t workers = 0;
    std::uint64_t seed = 0;
  };
  static void describe(Manifest<Options>& m);
  explicit Mislabelled(const Options& options) : options_(options) {}

  Report run(Workshop& shop) override;

 private:
  struct Samples {
    Matrix rows;
    std::vector<std::int64_t> labels, said;  ///< class by the data, below 0 for none; class by the network
  };
  Samples read(Workshop& shop);
  void judge_class(Workshop& shop, const Samples& samples, std::int64_t label, screen::Scored& scored);
  std::string place_of_scores(Workshop& shop) const;
  Report report_of(const Samples& samples, const screen::Scored& scored, const std::string& place) const;

  Options options_;
  std::atomic<bool> stop_ = false;
  std::int64_t classes_ = 0;
};

void Mislabelled::describe(Manifest<Options>& m) {
  m.name("mislabelled")
      .version("1.0.0")
      .summary("Finds samples that are unlike the others of their class, whose labels may be wrong.");
  m.option("rows", &Options::rows,
           "what samples are compared by: features, what the trained network has ahead of its last linear "
           "layer, or "
           "inputs");
  m.option("pool", &Options::pool, "detectors, as of the verb screen, fitted to each class by itself");
  m.option("contamination", &Options::contamination, "share of the samples of each class that is flagged")
      .above(0.0)
      .below(1.0);
  m.option("out", &Options::out,
           "CSV file to write, as the verb screen does, for the dataset `excluding`; empty: scores.csv in "
           "the tool's "
           "folder below the run");
  m.option("most", &Options::most, "samples that the report names, the oddest first").min(0);
  m.option("batch_size", &Options::batch_size, "samples that the network is given at a time")
      .range(1, 1 << 20);
  m.option("workers", &Options::workers, "threads; 0: one a processor").max(1024);
  m.option("seed", &Options::seed, "of detectors that draw").max(9007199254740991.0);
}

/// The training split, as evaluations see it: without dropout.
Mislabelled::Samples Mislabelled::read(Workshop& shop) {
  const at::NoGradGuard no_grad;
  Dataset& dataset = shop.dataset("train");
  Network& network = shop.network();
  Samples samples;
  samples.labels = dataset.labels();
  if (samples.labels.empty())
    throw ConfigError("the run's data has no classes, and labels that may be wrong are those of classes");
  at::Tensor features;
  const bool shown = network.add_tap(this, [&](const NodeActivity& node) {
    if (node.op == "Gemm" || node.op == "MatMul") features = node.inputs.front();
  });
  if (!shown && options_.rows == RowsOf::features)
    throw ConfigError("the model has no graph that shows its layers: take rows = \"inputs\"");
  const auto count = static_cast<std::int64_t>(samples.labels.size());
  for (std::int64_t first = 0; first < count && !shop.stopping(); first += options_.batch_size) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = first; i < std::min(count, first + options_.batch_size); ++i) indices.push_back(i);
    Batch batch = dataset.read(indices, {host().random("rows"), first, 0});
    for (at::Tensor& input : batch.inputs) input = input.to(at::Device(host().run().device));
    const at::Tensor said = network.forward(batch, {}).argmax(-1).to(at::kCPU, at::kLong).contiguous();
    if (options_.rows == RowsOf::features && !features.defined())
      throw ConfigError("the model has no linear layer: take rows = \"inputs\"");
    const at::Tensor seen = options_.rows == RowsOf::features ? features : batch.inputs.front();
    const at::Tensor flat = seen.to(at::kCPU, at::kDouble).reshape({seen.size(0), -1}).contiguous();
    if (flat.size(0) != std::ssize(indices) || said.numel() != std::ssize(indices))
      throw ConfigError(
          "the network has no row of its own for each sample: expected a classifier of samples");
    const auto width = static_cast<std::size_t>(flat.size(1));
    if (first == 0) samples.rows = Matrix(static_cast<std::size_t>(count), width);
    std::copy_n(flat.const_data_ptr<double>(), flat.numel(),
                samples.rows.row(static_cast<std::size_t>(first)).data());
    samples.said.insert(samples.said.end(), said.const_data_ptr<std::int64_t>(),
                        said.const_data_ptr<std::int64_t>() + said.numel());
    shop.progress(first, count);
  }
  network.remove_tap(this);
  if (!std::ranges::all_of(samples.rows.values, [](double each) { return std::isfinite(each); }))
    throw DataError("a sample has a number that is not finite, in the data or as the network sees it");
  return samples;
}

/// Scores are less the threshold of the class, so that those of all classes lie on one scale.
void Mislabelled::judge_class(Workshop& shop, const Samples& samples, std::int64_t label,
                              screen::Scored& scored) {
  std::vector<std::size_t> members;
  for (std::size_t i = 0; i < samples.labels.size(); ++i)
    if (samples.labels[i] == label) members.push_back(i);
  if (members.empty()) return;
  Matrix rows(members.size(), samples.rows.columns);
  for (std::size_t i = 0; i < members.size(); ++i)
    std::ranges::copy(samples.rows.row(members[i]), rows.row(i).begin());
  screen::Work work;
  work.workers = options_.workers > 0 ? options_.workers : std::max(1U, std::thread::hardware_concurrency());
  work.start = [this](std::function<void()> run) {
    return host().thread("fit", [run = std::move(run)](const std::stop_token&) { run(); });
  };
  work.watch = [this, &shop](std::size_t, std::size_t) {
    if (shop.stopping()) stop_ = true;
  };
  work.stopping = [this] { return stop_.load(); };
  screen::Pool pool({.detectors = options_.pool, .seed = options_.seed});
  try {
    for (const screen::Pool::Failure& failure : pool.fit(rows, work).failures)
      host().log(LogLevel::warning, "class " + std::to_string(label) + ": " + failure.name +
                                        " cannot be fitted and is left out: " + failure.reason);
  } catch (const DataError& error) {
    host().log(LogLevel::warning, "class " + std::to_string(label) + " is not judged: " + error.what());
    return;
  }
  ++classes_;
  const std::vector<std::vector<double>> standard = pool.fitted_scores();
  const std::vector<double> all = screen::combined(standard, screen::Combination::average);
  const double threshold = screen::threshold_of(all, options_.contamination);
  for (std::size_t i = 0; i < members.size() && i < all.size(); ++i) {
    scored.combined[members[i]] = all[i] - threshold;
    for (std::size_t m = 0; m < standard.size(); ++m) {
      const auto place =
          std::ranges::find(scored.detectors, pool.members()[m].name) - scored.detectors.begin();
      scored.standard[static_cast<std::size_t>(place)][members[i]] = standard[m][i];
    }
  }
}

std::string Mislabelled::place_of_scores(Workshop& shop) const {
  return options_.out.empty() ? shop.folder() + "/scores.csv" : options_.out;
}

Report Mislabelled::report_of(const Samples& samples, const screen::Scored& scored,
                              const std::string& place) const {
  std::vector<std::size_t> order;
  std::int64_t flagged = 0;
  for (std::size_t i = 0; i < scored.combined.size(); ++i) {
    order.push_back(i);
    flagged += scored.is_outlier(i) ? 1 : 0;
  }
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t i) { return scored.combined[i]; });
  order.resize(std::min(order.size(), static_cast<std::size_t>(options_.most)));
  Report report;
  report.facts = {{"file", place},
                  {"samples", static_cast<std::int64_t>(scored.combined.size())},
                  {"columns", static_cast<std::int64_t>(samples.rows.columns)},
                  {"classes", classes_},
                  {"flagged", flagged}};
  report.columns = {"row", "class", "the network says", "score"};
  for (const std::size_t i : order)
    report.rows.push_back(
        {static_cast<std::int64_t>(i + 1), samples.labels[i], samples.said[i], scored.combined[i]});
  return report;
}

Report Mislabelled::run(Workshop& shop) {
  screen::Scored scored;
  const screen::Pool pool({.detectors = options_.pool});
  for (const screen::Pool::Member& member : pool.members()) scored.detectors.push_back(member.name);
  const Samples samples = read(shop);
  if (shop.stopping()) return {};
  scored.combined.assign(samples.labels.size(), -1.0);  // of those that are not judged: no outlier
  scored.standard.assign(scored.detectors.size(), std::vector<double>(samples.labels.size(), 0.0));
  const std::int64_t most = *std::ranges::max_element(samples.labels);
  for (std::int64_t label = 0; label <= most && !shop.stopping(); ++label)
    judge_class(shop, samples, label, scored);
  if (shop.stopping()) return {};
  if (classes_ == 0) throw DataError("no class has enough samples for the detectors of the pool");
  const std::string place = place_of_scores(shop);
  screen::write_scores(place, scored);
  return report_of(samples, scored, place);
}

}  // namespace

TRAINYARD_PLUGIN(Mislabelled)
