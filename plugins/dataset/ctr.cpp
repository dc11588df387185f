// Made-up clicks with the shape of real ones: categories whose values are Zipf-distributed, in tables from
// small to large, and a truth that a model can learn from them. A sample is a function of (seed, split,
// index): nothing is kept of it.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include <ATen/ops/empty.h>

#include "clicks.hpp"
#include "zipf.hpp"

namespace {

using namespace trainyard;

struct Options {
  std::int64_t size = 1024;
  std::int64_t seed = 0;
  std::vector<std::int64_t> rows = {10, 100, 1000};
  std::int64_t features = 0;
  double zipf = 1.1;
  double signal = 2.0;
  double positive_rate = 0.32;
};

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

/// A factorisation machine of rank 4 (Rendle, ICDM 2010, equation 1) with normal weights; its pairs have
/// together as much variance as its single terms where all rows are as likely. Features add a linear term.
class Truth {
 public:
  explicit Truth(const Options& options) {
    const RandomStream weights(static_cast<std::uint64_t>(options.seed), "ctr/weights");
    const auto tables = static_cast<double>(options.rows.size());
    const double pairs = std::max(1.0, tables * (tables - 1.0) / 2.0);
    const double deviation = std::pow(tables / (pairs * rank), 0.25);
    std::uint64_t place = 0;
    for (const std::int64_t rows : options.rows) {
      std::vector<Row>& table = tables_.emplace_back(static_cast<std::size_t>(rows));
      for (Row& row : table) {
        row.linear = static_cast<float>(normal(weights, place++));
        for (float& factor : row.factors) factor = static_cast<float>(deviation * normal(weights, place++));
      }
    }
    for (std::int64_t f = 0; f < options.features; ++f) features_.push_back(normal(weights, place++));
  }

  double value(const std::int64_t* ids, const float* features) const {
    double sum = 0.0;
    std::array<double, rank> total{}, squares{};
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      const Row& row = tables_[t][static_cast<std::size_t>(ids[t])];
      sum += row.linear;
      for (std::size_t r = 0; r < rank; ++r) {
        total[r] += row.factors[r];
        squares[r] += row.factors[r] * row.factors[r];
      }
    }
    for (std::size_t r = 0; r < rank; ++r) sum += 0.5 * (total[r] * total[r] - squares[r]);
    for (std::size_t f = 0; f < features_.size(); ++f) sum += features_[f] * features[f];
    return sum;
  }

  /// Element `index` of normal numbers, by the Box-Muller transform.
  static double normal(const RandomStream& stream, std::uint64_t index) {
    const double radius = std::sqrt(-2.0 * std::log1p(-stream.uniform(2 * index)));
    return radius * std::cos(2.0 * std::numbers::pi * stream.uniform(2 * index + 1));
  }

 private:
  static constexpr std::size_t rank = 4;
  struct Row {
    float linear;
    std::array<float, rank> factors;
  };
  std::vector<std::vector<Row>> tables_;
  std::vector<double> features_;
};

class Ctr final : public Dataset {
 public:
  using Options = ::Options;
  static void describe(Manifest<Options>& m) {
    m.name("ctr").version("1.0.0").summary(
        "Seeded made-up clicks: Zipf-distributed categories, labels of a factorisation machine.");
    m.option("size", &Options::size, "samples; every split draws its own").range(1, 1LL << 40);
    m.option("seed", &Options::seed, "of the data, whatever the seed of the run").min(0);
    m.option("rows", &Options::rows, "of each table: the number of values that its category has")
        .range(1, 1 << 24);
    m.option("features", &Options::features, "numbers a sample, beside its categories").range(0, 1 << 16);
    m.option("zipf", &Options::zipf, "exponent: value k has a share proportional to (k + 1)^-zipf").min(0.0);
    m.option("signal", &Options::signal, "standard deviation of the logit of a click").range(0.0, 100.0);
    m.option("positive_rate", &Options::positive_rate, "share of clicks").above(0.0).below(1.0);
  }
  explicit Ctr(const Options& options) : options_(options) {}

  void open(const std::string& split) override {
    if (options_.rows.empty()) throw ConfigError("rows is empty: give the rows of at least one table");
    const auto seed = static_cast<std::uint64_t>(options_.seed);
    stream_ = RandomStream(seed, "ctr/" + split);
    for (const std::int64_t rows : options_.rows) tables_.emplace_back(rows, options_.zipf, 1.0);
    truth_ = std::make_unique<Truth>(options_);
    calibrate(RandomStream(seed, "ctr/calibration"));
  }

  std::int64_t size() const override { return options_.size; }
  BatchSchema schema() const override {
    return datasets::click_schema(options_.features, tables(),
                                  *std::max_element(options_.rows.begin(), options_.rows.end()));
  }

  Batch read(std::span<const std::int64_t> indices, const ReadContext&) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    const at::Tensor features = at::empty({count, options_.features}, at::kFloat);
    const at::Tensor ids = at::empty({count, tables()}, at::kLong);
    Batch batch;
    batch.target = at::empty({count}, at::kLong);
    auto* feature = features.mutable_data_ptr<float>();
    auto* id = ids.mutable_data_ptr<std::int64_t>();
    auto* label = batch.target.mutable_data_ptr<std::int64_t>();
    for (const std::int64_t index : indices) {
      *label++ = draw(stream_, static_cast<std::uint64_t>(index), id, feature);
      id += tables();
      feature += options_.features;
    }
    if (options_.features > 0) batch.inputs.push_back(features);
    batch.inputs.push_back(ids);
    return batch;
  }

  std::vector<std::int64_t> labels() const override {
    std::vector<std::int64_t> labels, ids(tables_.size());
    std::vector<float> features(static_cast<std::size_t>(options_.features));
    for (std::int64_t i = 0; i < options_.size; ++i)
      labels.push_back(draw(stream_, static_cast<std::uint64_t>(i), ids.data(), features.data()));
    return labels;
  }

 private:
  std::int64_t tables() const { return static_cast<std::int64_t>(tables_.size()); }

  /// Elements of the stream that a sample takes: one for the label, one a table.
  std::uint64_t stride() const { return 1 + tables_.size(); }

  /// Fills in a sample without its label; gives the truth's value.
  double inputs(const RandomStream& stream, std::uint64_t index, std::int64_t* ids, float* features) const {
    const std::uint64_t first = index * stride();
    for (std::size_t t = 0; t < tables_.size(); ++t) ids[t] = tables_[t].at(stream.uniform(first + 1 + t));
    const RandomStream normals = stream.at(0, 1);
    const auto count = static_cast<std::uint64_t>(options_.features);
    for (std::uint64_t f = 0; f < count; ++f)
      features[f] = static_cast<float>(Truth::normal(normals, index * count + f));
    return truth_->value(ids, features);
  }

  std::int64_t draw(const RandomStream& stream, std::uint64_t index, std::int64_t* ids,
                    float* features) const {
    const double logit = scale_ * inputs(stream, index, ids, features) + offset_;
    return stream.uniform(index * stride()) < sigmoid(logit);
  }

  /// Finds the scale and the offset of the logit that give `signal` and `positive_rate`.
  void calibrate(const RandomStream& stream) {
    std::vector<double> values(1 << 14);
    std::vector<std::int64_t> ids(tables_.size());
    std::vector<float> features(static_cast<std::size_t>(options_.features));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = inputs(stream, i, ids.data(), features.data());
    const auto count = static_cast<double>(values.size());
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
    double variance = 0.0;
    for (const double value : values) variance += (value - mean) * (value - mean) / count;
    scale_ = variance > 0.0 ? options_.signal / std::sqrt(variance) : 0.0;
    double low = -1000.0, high = 1000.0;
    for (int halvings = 0; halvings < 60; ++halvings) {
      offset_ = (low + high) / 2.0;
      double rate = 0.0;
      for (const double value : values) rate += sigmoid(scale_ * value + offset_) / count;
      (rate < options_.positive_rate ? low : high) = offset_;
    }
  }

  Options options_;
  RandomStream stream_{0, "ctr"};
  std::vector<datasets::Zipf> tables_;
  std::unique_ptr<Truth> truth_;
  double scale_ = 0.0, offset_ = 0.0;
};

}  // namespace

TRAINYARD_PLUGIN(Ctr)
