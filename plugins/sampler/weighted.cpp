// Draws with replacement, some classes more often than others: a class by Walker's alias method (Vose, "A
// linear algorithm for generating random numbers with a given distribution", IEEE TSE 17(9), 1991), then one
// of its samples. Classes stand for their samples because all samples of a class weigh the same.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>

#include <trainyard/sampler.hpp>

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
    std::int64_t size = 0;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("weighted")
        .version("1.0.0")
        .summary("Draws with replacement, each class as often as its weight says.");
    m.option("balance", &Options::balance, "draw every class equally often");
    m.option("class_weights", &Options::class_weights,
             "weight of a sample of class 0, 1, ...; not together with balance")
        .min(0.0);
    m.option("size", &Options::size, "samples drawn an epoch; 0: as many as the dataset has").min(0);
  }
  explicit Weighted(const Options& options) : options_(options) {}

  void open(const Source& source) override {
    if (options_.balance == !options_.class_weights.empty())
      throw trainyard::ConfigError("sampler weighted: set either balance = true or class_weights = [...]");
    if (source.labels.empty())
      throw trainyard::ConfigError("sampler weighted needs a dataset with classes, and this one has none");
    const auto [lowest, highest] = std::minmax_element(source.labels.begin(), source.labels.end());
    if (*lowest < 0)
      throw trainyard::PluginError("the dataset has a class " + std::to_string(*lowest) +
                                   "; classes begin at 0");
    members_.assign(static_cast<std::size_t>(*highest) + 1, {});
    for (std::size_t i = 0; i < source.labels.size(); ++i)
      members_[static_cast<std::size_t>(source.labels[i])].push_back(static_cast<std::int64_t>(i));
    classes_.emplace(class_mass());
    size_ = options_.size > 0 ? options_.size : source.size;
    random_ = source.random;
  }
  std::int64_t size() const override { return size_; }
  void order(std::int64_t epoch, std::int64_t first, std::span<std::int64_t> out) const override {
    const trainyard::RandomStream random = random_->at(static_cast<std::uint64_t>(epoch));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::uint64_t element = 2 * (static_cast<std::uint64_t>(first) + i);
      const auto& members = members_[classes_->draw(random.uniform(element))];
      out[i] = members[random.below(element + 1, members.size())];
    }
  }

 private:
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
    if (std::accumulate(mass.begin(), mass.end(), 0.0) > 0.0) return mass;
    throw trainyard::ConfigError(
        "sampler weighted: class_weights gives every class in the data a weight of 0");
  }

  Options options_;
  std::int64_t size_ = 0;
  std::vector<std::vector<std::int64_t>> members_;  ///< samples of each class
  std::optional<AliasTable> classes_;
  std::optional<trainyard::RandomStream> random_;
};

}  // namespace

TRAINYARD_PLUGIN(Weighted)
