#include <cmath>
#include <optional>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

#include "checks.hpp"

namespace {

using namespace trainyard;

/// GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019, section 2.3): layer
/// norm before attention and before the MLP, learned positions, embedding and output tied, residual
/// projections scaled by 1 / sqrt(2 layers) at the start.
class Gpt final : public Model {
 public:
  struct Options {
    std::int64_t n_layer = 4;
    std::int64_t n_head = 4;
    std::int64_t d_model = 128;
    std::optional<std::int64_t> seq_len;
  };
  static void describe(Manifest<Options>& m) {
    m.name("gpt").version("1.0.0").summary("Pre-norm transformer language model with tied embeddings.");
    m.provides("graph").provides("tied_weights");
    m.option("n_layer", &Options::n_layer, "blocks of attention and MLP").range(1, 1 << 16);
    m.option("n_head", &Options::n_head, "attention heads; divides d_model").min(1);
    m.option("d_model", &Options::d_model, "width").min(1);
    m.option("seq_len", &Options::seq_len, "tokens of a sample; left out: the data's").min(1);
  }
  explicit Gpt(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    const std::int64_t time = models::require_tokens(context.schema);
    const std::int64_t width = options_.d_model, vocabulary = context.schema.vocabulary;
    if (options_.seq_len)
      models::require_equal("model.seq_len", *options_.seq_len, "the tokens of a sample", time);
    if (width % options_.n_head != 0)
      throw ConfigError("model.n_head = " + std::to_string(options_.n_head) +
                        " does not divide model.d_model = " + std::to_string(width));

    GraphBuilder b(context.schema, context.seed);
    const auto tokens = b.embedding(b.input(), "wte", vocabulary, width, deviation);
    const ValueId positions = b.normal_parameter("wpe.weight", {time, width}, deviation);
    // Rows of [batch x time, width] from here on; attention alone needs to know the samples apart.
    ValueId x = b.dropout(b.flatten(b.add(tokens.output, positions), 2), "drop");
    for (std::int64_t layer = 0; layer < options_.n_layer; ++layer) x = block(b, x, layer, time);
    x = b.tied_linear(b.layer_norm(x, "ln_f"), "head", tokens.weight);
    return std::make_unique<GraphNetwork>(b.finish(b.reshape(x, {-1, time, vocabulary})));
  }

 private:
  static constexpr double deviation = 0.02;

  ValueId block(GraphBuilder& b, ValueId x, std::int64_t layer, std::int64_t time) const {
    const std::int64_t width = options_.d_model;
    const std::string name = "h." + std::to_string(layer);
    const double residual = deviation / std::sqrt(2.0 * static_cast<double>(options_.n_layer));

    ValueId y = b.linear(b.layer_norm(x, name + ".ln_1"), name + ".attn.qkv", 3 * width, true, deviation);
    const std::vector<ValueId> qkv = b.split(b.reshape(y, {-1, time, 3 * width}), 3, 2);
    y = b.flatten(b.attention(qkv[0], qkv[1], qkv[2], name + ".attn", options_.n_head, true), 2);
    y = b.linear(y, name + ".attn.proj", width, true, residual);
    x = b.add(x, b.dropout(y, name + ".attn.drop"));

    y = b.linear(b.layer_norm(x, name + ".ln_2"), name + ".mlp.fc", 4 * width, true, deviation);
    y = b.linear(b.gelu(y, true), name + ".mlp.proj", width, true, residual);
    return b.add(x, b.dropout(y, name + ".mlp.drop"));
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Gpt)
