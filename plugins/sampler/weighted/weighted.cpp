// Draws with replacement, some samples more often than others: a group of samples that weigh the same by Walker's
// alias method (Vose, "A linear algorithm for generating random numbers with a given distribution", IEEE TSE 17(9),
// 1991), then one of it. Groups are classes, or, where a file has a weight for each row, single samples.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>

#include <trainyard/sampler.hpp>

#include "../../dataset/by_row.hpp"

namespace {

/// Draws i with probability weights[i] / sum in constant time.
class AliasTable {
 public:
  explicit AliasTable(std::vector<double> weights) : keep_(std::move(weights)), alias_(keep_.size()) {
    const double sum = std::accumulate(keep_.begin(), keep_.end(), 0.0);
    std::vector<std::size_t> small, large;
    for (std::size_t i = 0; i < keep_.size(); ++i) {
      keep_[i] *= static_cast<double>(keep_.size()) / sum;
      alias_[i] = i;  // what rounding leaves over is its own
      (keep_[i] < 1.0 ? small : large).push_back(i);
    }
    while (!small.empty() && !large.empty()) {
      const std::size_t little = small.back(), much = large.back();
      small.pop_back();
      alias_[little] = much;
      keep_[much] -= 1.0 - keep_[little];
      if (keep_[much] >= 1.0) continue;
      large.pop_back();
      small.push_back(much);
    }
  }

  /// `uniform` in [0, 1).
  std::size_t draw(double uniform) const {
    const double scaled = uniform * static_cast<double>(keep_.size());
    const std::size_t i = std::min(static_cast<std::size_t>(scaled), keep_.size() - 1);
    return scaled - static_cast<double>(i) < keep_[i] ? i : alias_[i];
  }

 private:
  std::vector<double> keep_;
  std::vector<std::size_t> alias_;
};

class Weighted final : public trainyard::Sampler {
 public:
  struct Options {
    bool balance = false;
    std::vector<double> class_weights;
    std::string row_weights;
    std::int64_t size = 0;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("weighted")
        .version("1.1.0")
        .summary("Draws with replacement, each class or each row as often as its weight says.");
    m.option("balance", &Options::balance, "draw every class equally often");
    m.option("class_weights", &Options::class_weights,
             "weight of a sample of class 0, 1, ...; not together with balance or row_weights")
        .min(0.0);
    m.option("row_weights", &Options::row_weights,
             "CSV file with columns row, from 1, and weight, as `trainyard screen` writes it: a weight for "
             "each row "
             "of the training data, whatever take says; empty: none")
        .file();
    m.option("size", &Options::size, "samples drawn an epoch; 0: as many as the dataset has").min(0);
  }
  explicit Weighted(const Options& options) : options_(options) {}

  void open(const Source& source) override {
    const int given = (options_.balance ? 1 : 0) + (options_.class_weights.empty() ? 0 : 1) +
                      (options_.row_weights.empty() ? 0 : 1);
    if (given != 1)
      throw trainyard::ConfigError(
          "sampler weighted: set one of balance = true, class_weights = [...] and "
          "row_weights = \"FILE.csv\"");
    groups_.emplace(options_.row_weights.empty() ? by_class(source.labels) : by_row(source));
    size_ = options_.size > 0 ? options_.size : source.size;
    random_ = source.random;
  }
  std::int64_t size() const override { return size_; }
  void order(std::int64_t epoch, std::int64_t first, std::span<std::int64_t> out) const override {
    const trainyard::RandomStream random = random_->at(static_cast<std::uint64_t>(epoch));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::uint64_t element = 2 * (static_cast<std::uint64_t>(first) + i);
      const std::size_t group = groups_->draw(random.uniform(element));
      out[i] = members_.empty() ? static_cast<std::int64_t>(group)
                                : members_[group][random.below(element + 1, members_[group].size())];
    }
  }

 private:
  /// Weight of each sample, by its row in the data.
  std::vector<double> by_row(const Source& source) const {
    const std::vector<double> all = datasets::read_by_row(
        options_.row_weights, "weight", {std::numeric_limits<double>::max(), false, "a weight, from 0"});
    const std::int64_t rows = source.samples.empty() ? source.size : source.all;
    if (std::ssize(all) != rows)
      throw trainyard::DataError("sampler weighted: " + options_.row_weights + " has " +
                                 std::to_string(all.size()) + " rows, and the training data " +
                                 std::to_string(rows) + ": expected a row for each");
    if (source.samples.empty()) return checked(all, "row_weights");
    std::vector<double> taken;
    for (const std::int64_t sample : source.samples) taken.push_back(all[static_cast<std::size_t>(sample)]);
    return checked(std::move(taken), "row_weights");
  }

  static std::vector<double> checked(std::vector<double> mass, const char* option) {
    const double sum = std::accumulate(mass.begin(), mass.end(), 0.0);
    if (!(sum > 0.0))
      throw trainyard::ConfigError(std::string("sampler weighted: ") + option +
                                   " gives everything in the data a weight of 0");
    if (!std::isfinite(sum))
      throw trainyard::ConfigError(std::string("sampler weighted: ") + option +
                                   " has weights whose sum is not finite: scale them");
    return mass;
  }

  std::vector<double> by_class(const std::vector<std::int64_t>& labels) {
    if (labels.empty())
      throw trainyard::ConfigError("sampler weighted needs a dataset with classes, and this one has none");
    const auto [lowest, highest] = std::minmax_element(labels.begin(), labels.end());
    if (*lowest < 0)
      throw trainyard::PluginError("the dataset has a class " + std::to_string(*lowest) +
                                   "; classes begin at 0");
    members_.assign(static_cast<std::size_t>(*highest) + 1, {});
    for (std::size_t i = 0; i < labels.size(); ++i)
      members_[static_cast<std::size_t>(labels[i])].push_back(static_cast<std::int64_t>(i));
    return checked(class_mass(), "class_weights");
  }

  /// Weight of all samples of each class together.
  std::vector<double> class_mass() const {
    std::vector<double> mass(members_.size());
    if (!options_.balance && options_.class_weights.size() < members_.size())
      throw trainyard::ConfigError("sampler weighted: class_weights has " +
                                   std::to_string(options_.class_weights.size()) + " numbers, the data has " +
                                   std::to_string(members_.size()) + " classes");
    for (std::size_t c = 0; c < members_.size(); ++c) {
      if (members_[c].empty()) continue;
      mass[c] = options_.balance ? 1.0 : options_.class_weights[c] * static_cast<double>(members_[c].size());
    }
    return mass;
  }

  Options options_;
  std::int64_t size_ = 0;
  std::vector<std::vector<std::int64_t>> members_;  ///< samples of each class; empty: a group is a sample
  std::optional<AliasTable> groups_;
  std::optional<trainyard::RandomStream> random_;
};

}  // namespace

TRAINYARD_PLUGIN(Weighted)
