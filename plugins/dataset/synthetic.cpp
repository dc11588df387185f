// Made-up data with a truth that can be learnt, the same on every machine for the same seed.
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "rows.hpp"
#include "tokens.hpp"

namespace {

using trainyard::RandomStream;

constexpr std::int64_t most_elements = std::int64_t{1} << 32;

struct Options {
  std::string kind = "classification";
  std::int64_t size = 1024;
  std::int64_t seed = 0;
  double noise = 0.5;
  std::vector<std::int64_t> shape = {16};
  std::int64_t classes = 10;
  std::int64_t seq_len = 32;
  std::int64_t vocabulary = 32;
};

/// Where the numbers of one object come from: the truth is the same for all splits, the samples are not.
struct Streams {
  RandomStream truth, samples;
  Streams(const Options& options, const std::string& split)
      : truth(static_cast<std::uint64_t>(options.seed), "synthetic/truth"),
        samples(static_cast<std::uint64_t>(options.seed), "synthetic/" + split) {}
};

std::vector<float> normal(std::int64_t count, const RandomStream& stream, double deviation) {
  std::vector<float> values(static_cast<std::size_t>(count));
  at::Tensor view = at::from_blob(values.data(), {count}, at::kFloat);
  trainyard::fill_normal(view, stream, 0.0, deviation);
  return values;
}

/// Classification: x = centre(class) + noise * N(0, 1), centres N(0, 1) in every feature.
/// Regression: x = N(0, 1), y = w . x + noise * N(0, 1), w = N(0, 1 / features).
class Rows final : public datasets::RowDataset {
 public:
  explicit Rows(const Options& options) : options_(options) {}

  void open(const std::string& split) override {
    const Streams streams(options_, split);
    shape_ = options_.shape;
    width_ = product(shape_);
    if (options_.kind == "classification")
      draw_classes(streams);
    else
      draw_values(streams);
  }

 private:
  void draw_classes(const Streams& streams) {
    classes_ = options_.classes;
    const std::vector<float> centres = normal(classes_ * width_, streams.truth, 1.0);
    features_ = normal(options_.size * width_, streams.samples, options_.noise);
    for (std::int64_t i = 0; i < options_.size; ++i) {
      class_of_.push_back(static_cast<std::int64_t>(streams.samples.at(0, 1).below(
          static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(classes_))));
      const float* centre = centres.data() + class_of_.back() * width_;
      float* row = features_.data() + i * width_;
      std::transform(row, row + width_, centre, row, std::plus<>());
    }
  }

  void draw_values(const Streams& streams) {
    const std::vector<float> weights =
        normal(width_, streams.truth, 1.0 / std::sqrt(static_cast<double>(width_)));
    features_ = normal(options_.size * width_, streams.samples, 1.0);
    value_of_ = normal(options_.size, streams.samples.at(0, 1), options_.noise);
    for (std::int64_t i = 0; i < options_.size; ++i)
      value_of_[static_cast<std::size_t>(i)] +=
          std::inner_product(weights.begin(), weights.end(), features_.begin() + i * width_, 0.0f);
  }

  Options options_;
};

/// A first-order Markov chain: with probability `noise` any token comes next, else one of two that the truth
/// gives to each token, equally often.
class Chain final : public datasets::TokenDataset {
 public:
  explicit Chain(const Options& options) : options_(options) {}

  void open(const std::string& split) override {
    const Streams streams(options_, split);
    seq_len_ = options_.seq_len;
    stride_ = seq_len_ + 1;
    vocabulary_ = options_.vocabulary;
    const auto any = static_cast<std::uint64_t>(vocabulary_);
    std::uint64_t token = 0;
    made_.resize(static_cast<std::size_t>(options_.size * stride_));
    for (std::uint64_t i = 0; i < made_.size(); ++i) {
      const std::uint64_t choice = streams.samples.below(2 * i, any * 2);
      const bool free = streams.samples.uniform(2 * i + 1) < options_.noise;
      token = free ? choice / 2 : streams.truth.below(2 * token + choice % 2, any);
      made_[i] = static_cast<std::uint16_t>(token);
    }
    tokens_ = made_;
  }

 private:
  Options options_;
  std::vector<std::uint16_t> made_;
};

class Synthetic final : public trainyard::Dataset {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("synthetic")
        .version("1.0.0")
        .summary("Seeded made-up data for classification, regression or language.");
    m.option("kind", &Options::kind,
             "classification: a normal cloud a class; regression: a linear map; language: a Markov chain")
        .one_of({"classification", "regression", "language"});
    m.option("size", &Options::size, "samples; every split draws its own").range(1, 1 << 30);
    m.option("seed", &Options::seed, "of the data, whatever the seed of the run").min(0);
    m.option("noise", &Options::noise,
             "standard deviation around a centre or a value; language: probability (at most 1) of a token at "
             "random")
        .range(0.0, 100.0);
    m.option("shape", &Options::shape, "of a sample's features: [16], or [3, 32, 32] for images")
        .range(1, 1 << 20);
    m.option("classes", &Options::classes, "of classification").range(2, 1 << 20);
    m.option("seq_len", &Options::seq_len, "tokens a sample, of language").range(1, 1 << 20);
    m.option("vocabulary", &Options::vocabulary, "distinct tokens, of language").range(2, 1 << 16);
  }
  explicit Synthetic(const Options& options) : options_(options) {}

  void open(const std::string& split) override {
    if (options_.kind == "language" && options_.noise > 1.0)
      throw trainyard::ConfigError("noise is a probability for kind = \"language\": at most 1");
    std::int64_t elements = options_.size;
    for (const std::int64_t size : options_.shape)
      if ((elements *= size) > most_elements)
        throw trainyard::ConfigError("size x shape is more than " + std::to_string(most_elements) +
                                     " numbers");
    if (options_.shape.empty())
      throw trainyard::ConfigError("shape is empty: give at least one size, as in [16]");
    if (options_.kind == "language")
      data_ = std::make_unique<Chain>(options_);
    else
      data_ = std::make_unique<Rows>(options_);
    data_->open(split);
  }
  std::int64_t size() const override { return data_->size(); }
  trainyard::BatchSchema schema() const override { return data_->schema(); }
  trainyard::Batch read(std::span<const std::int64_t> indices,
                        const trainyard::ReadContext& context) const override {
    return data_->read(indices, context);
  }
  std::vector<std::int64_t> labels() const override { return data_->labels(); }

 private:
  Options options_;
  std::unique_ptr<trainyard::Dataset> data_;
};

}  // namespace

TRAINYARD_PLUGIN(Synthetic)
