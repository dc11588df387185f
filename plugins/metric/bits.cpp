// The bits that a network needs for a text, -log2 of the probability of each token, by its tokens, or by its bytes or
// characters, so that networks with different tokens can be compared.
#include <algorithm>
#include <numbers>

#include <ATen/ops/empty.h>

#include <trainyard/mixins/reads_dataset.hpp>
#include <trainyard/new_data.hpp>

#include "log_likelihood.hpp"

namespace {

using namespace trainyard;

class Bits final : public MeanMetric, public ReadsDataset {
 public:
  struct Options {
    std::string per = "token";
    std::optional<std::int64_t> ignore_index;
  };
  static void describe(Manifest<Options>& m) {
    m.name("bits").version("1.0.0").summary(
        "Bits that a network needs for a token, byte or character of text.");
    m.option("per", &Options::per,
             "byte and character need a dataset that knows the text of its tokens, such as text, and <unk> "
             "does not count then")
        .one_of({"token", "byte", "character"});
    metrics::describe_ignore_index(m);
  }
  explicit Bits(const Options& options) : options_(options) {}

  std::vector<std::string> names() const override { return {"bits_per_" + options_.per}; }

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    metrics::require_class_scores("metric bits", output, schema);
    if (schema.vocabulary == 0 || schema.vocabulary != schema.classes)
      throw ConfigError(
          "metric bits is for networks that say which token of a text comes next, and the data has classes: "
          "take log_loss");
  }

  void read_dataset(const Dataset& training) override {
    if (options_.per == "token") return;
    const auto* const text = dynamic_cast<const Tokenizer*>(&training);
    if (text == nullptr)
      throw ConfigError("metric bits has per = \"" + options_.per +
                        "\", and the dataset does not know the text of its tokens, as text does: take token");
    const std::int64_t tokens = training.schema().vocabulary;
    lengths_ = at::empty({tokens}, at::kLong);
    auto* const out = lengths_.mutable_data_ptr<std::int64_t>();
    for (std::int64_t token = 0; token < tokens; ++token)
      out[token] = token == text->unknown() ? 0 : length(text->decode({token}));
    known_ = at::ones_like(lengths_);
    if (text->unknown()) known_.mutable_data_ptr<std::int64_t>()[*text->unknown()] = 0;
  }

  void update(const at::Tensor& output, const at::Tensor&, const Batch& batch) override {
    at::Tensor counts = metrics::counts_of(batch.target, options_.ignore_index), lengths = counts;
    if (lengths_.defined()) {
      const at::Tensor target = batch.target.reshape(-1).masked_fill(counts.eq(0), 0);
      lengths_ = lengths_.to(output.device());
      known_ = known_.to(output.device());
      counts = counts.mul(known_.take(target));
      lengths = lengths_.take(target).mul(counts);
    }
    add(metrics::log_probabilities(output, batch.target, counts).sum().div(-std::numbers::ln2),
        lengths.sum());
  }

 private:
  /// In bytes, or in characters: bytes that begin one in UTF-8.
  std::int64_t length(const std::string& text) const {
    if (options_.per == "byte") return std::ssize(text);
    return std::count_if(text.begin(), text.end(),
                         [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; });
  }

  Options options_;
  at::Tensor lengths_, known_;  ///< of each token, int64; 1 but for <unk>, whose text nobody knows
};

}  // namespace

TRAINYARD_PLUGIN(Bits)
