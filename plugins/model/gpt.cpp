#include <cmath>
#include <optional>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

#include "checks.hpp"
#include "transformer.hpp"

namespace {

using namespace trainyard;

/// GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019, section 2.3): layer
/// norm before attention and before the MLP, learned positions, embedding and output tied, residual
/// projections scaled by 1 / sqrt(2 layers) at the start.
///
/// With position = "rope", norm = "rms", mlp = "swiglu" and without biases blocks are those of LLaMA (Touvron et
/// al., 2023, section 2.2); n_kv_head groups queries (Ainslie et al., "GQA", EMNLP 2023, section 2.2).
class Gpt final : public Model {
 public:
  struct Options {
    std::int64_t n_layer = 4;
    std::int64_t n_head = 4;
    std::int64_t d_model = 128;
    std::optional<std::int64_t> seq_len;
    std::string position = "learned";
    std::optional<std::int64_t> n_positions;
    double rope_theta = 10000.0;
    std::string norm = "layer";
    double norm_eps = 1e-5;
    std::string mlp = "gelu_tanh";
    std::optional<std::int64_t> mlp_width;
    std::optional<std::int64_t> n_kv_head;
    bool bias = true;
    bool tied = true;
  };
  static void describe(Manifest<Options>& m) {
    m.name("gpt").version("1.1.0").summary(
        "Pre-norm transformer language model, as GPT-2 by default; options make it one like LLaMA.");
    m.provides("graph").provides("tied_weights where tied = true");
    m.option("n_layer", &Options::n_layer, "blocks of attention and MLP").range(1, 1 << 16);
    m.option("n_head", &Options::n_head, "attention heads; divides d_model").min(1);
    m.option("d_model", &Options::d_model, "width").min(1);
    m.option("seq_len", &Options::seq_len, "tokens of a sample; left out: the data's").min(1);
    m.option(
         "position", &Options::position,
         "learned: a table of vectors, added to the tokens'; rope: queries and keys are rotated by angles "
         "that grow with the place (Su et al., \"RoFormer\", 2021), whose halves are the first and the "
         "second of a head")
        .one_of({"learned", "rope"});
    m.option("n_positions", &Options::n_positions,
             "with position = \"learned\": rows of the table, of which the first seq_len are used; left out: "
             "seq_len")
        .range(1, 1 << 20);
    m.option("rope_theta", &Options::rope_theta,
             "with position = \"rope\": pair i of a head of width w turns by theta^(-2i/w) a place")
        .above(0.0);
    m.option("norm", &Options::norm,
             "layer norm, or division by the root of the mean square (Zhang and Sennrich, NeurIPS 2019)")
        .one_of({"layer", "rms"});
    m.option("norm_eps", &Options::norm_eps, "is added to the variance, or to the mean square").above(0.0);
    m.option("mlp", &Options::mlp,
             "activation between its two layers, gelu by the error function or by tanh; or swiglu, of which "
             "one "
             "layer more gates the wide one: silu(gate) * fc (Shazeer, \"GLU variants\", 2020)")
        .one_of({"gelu_tanh", "gelu", "swiglu"});
    m.option("mlp_width", &Options::mlp_width, "its inner width; left out: 4 d_model").range(1, 1 << 20);
    m.option("n_kv_head", &Options::n_kv_head,
             "heads of keys and values, each for n_head / n_kv_head heads of queries; left out: n_head")
        .min(1);
    m.option("bias", &Options::bias, "whether the linear layers of the blocks have biases");
    m.option("tied", &Options::tied, "whether the output has the weights of the embedding, or its own");
  }
  explicit Gpt(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    const std::int64_t time = models::require_tokens(context.schema);
    const std::int64_t vocabulary = context.schema.vocabulary;
    check(time);

    GraphBuilder b(context.schema, context.seed);
    const auto tokens = b.embedding(b.input(), "wte", vocabulary, options_.d_model, deviation);
    ValueId x = tokens.output;
    if (!is_rope()) x = b.add(x, positions(b, time));
    // Rows of [batch x time, width] from here on; attention alone needs to know the samples apart.
    x = b.dropout(b.flatten(x, 2), "drop");
    const Parts parts{
        .time = time,
        .norm = models::RootMeanSquare::where(b, options_.norm == "rms", options_.norm_eps),
        .rotation = models::Rotation::where(b, is_rope(), time, head_width(), options_.rope_theta)};
    for (std::int64_t layer = 0; layer < options_.n_layer; ++layer)
      x = block(b, x, "h." + std::to_string(layer), parts);
    x = norm(b, x, "ln_f", parts);
    x = options_.tied ? b.tied_linear(x, "head", tokens.weight)
                      : b.linear(x, "head", vocabulary, false, deviation);
    return std::make_unique<GraphNetwork>(b.finish(b.reshape(x, {-1, time, vocabulary})));
  }

 private:
  static constexpr double deviation = 0.02;

  /// What all blocks have in common.
  struct Parts {
    std::int64_t time = 0;
    std::optional<models::RootMeanSquare> norm;
    std::optional<models::Rotation> rotation;
  };

  bool is_rope() const { return options_.position == "rope"; }
  std::int64_t head_width() const { return options_.d_model / options_.n_head; }
  std::int64_t key_heads() const { return options_.n_kv_head.value_or(options_.n_head); }

  void check(std::int64_t time) const {
    if (options_.seq_len)
      models::require_equal("model.seq_len", *options_.seq_len, "the tokens of a sample", time);
    const std::string heads = "model.n_head = " + std::to_string(options_.n_head);
    if (options_.d_model % options_.n_head != 0)
      throw ConfigError(heads + " does not divide model.d_model = " + std::to_string(options_.d_model));
    if (options_.n_head % key_heads() != 0)
      throw ConfigError("model.n_kv_head = " + std::to_string(key_heads()) + " does not divide " + heads +
                        ": each head of keys serves as many heads of queries");
    if (is_rope() && head_width() % 2 != 0)
      throw ConfigError(
          "model.position = \"rope\" turns pairs, and a head is model.d_model / model.n_head = " +
          std::to_string(head_width()) + " wide: choose an even width");
    if (is_rope() && options_.n_positions)
      throw ConfigError("model.n_positions is of position = \"learned\"; rope has no table: leave it out");
    if (options_.n_positions && *options_.n_positions < time)
      throw ConfigError("model.n_positions is " + std::to_string(*options_.n_positions) +
                        ", and a sample has " + std::to_string(time) +
                        " tokens: raise it, or lower data.seq_len");
  }

  ValueId positions(GraphBuilder& b, std::int64_t time) const {
    const std::int64_t rows = options_.n_positions.value_or(time);
    const ValueId all = b.normal_parameter("wpe.weight", {rows, options_.d_model}, deviation);
    return rows == time ? all : b.slice(all, 0, 0, time);
  }

  ValueId norm(GraphBuilder& b, ValueId x, const std::string& name, const Parts& parts) const {
    return parts.norm ? parts.norm->apply(b, x, name) : b.layer_norm(x, name, options_.norm_eps);
  }

  ValueId block(GraphBuilder& b, ValueId x, const std::string& name, const Parts& parts) const {
    const double residual = deviation / std::sqrt(2.0 * static_cast<double>(options_.n_layer));
    ValueId y = attention(b, norm(b, x, name + ".ln_1", parts), name + ".attn", parts);
    y = b.linear(y, name + ".attn.proj", options_.d_model, options_.bias, residual);
    x = b.add(x, b.dropout(y, name + ".attn.drop"));

    y = hidden(b, norm(b, x, name + ".ln_2", parts), name + ".mlp");
    y = b.linear(y, name + ".mlp.proj", options_.d_model, options_.bias, residual);
    return b.add(x, b.dropout(y, name + ".mlp.drop"));
  }

  ValueId attention(GraphBuilder& b, ValueId x, const std::string& name, const Parts& parts) const {
    const std::int64_t of_queries = options_.d_model, of_keys = key_heads() * head_width();
    const std::int64_t width = of_queries + 2 * of_keys;
    const ValueId y = b.linear(x, name + ".qkv", width, options_.bias, deviation);
    const ValueId all = b.reshape(y, {-1, parts.time, width});
    std::vector<ValueId> qkv;
    if (of_keys == of_queries)
      qkv = b.split(all, 3, 2);
    else
      qkv = {b.slice(all, 2, 0, of_queries), b.slice(all, 2, of_queries, of_queries + of_keys),
             b.slice(all, 2, of_queries + of_keys, width)};
    if (parts.rotation) {
      qkv[0] = parts.rotation->apply(b, qkv[0], options_.n_head);
      qkv[1] = parts.rotation->apply(b, qkv[1], key_heads());
    }
    const ValueId attended = b.node(
        "Attention", name, std::move(qkv),
        {{"q_num_heads", options_.n_head}, {"kv_num_heads", key_heads()}, {"is_causal", std::int64_t{1}}});
    return b.flatten(attended, 2);
  }

  ValueId hidden(GraphBuilder& b, ValueId x, const std::string& name) const {
    const std::int64_t width = options_.mlp_width.value_or(4 * options_.d_model);
    const bool gated = options_.mlp == "swiglu";
    const ValueId gate = gated ? b.linear(x, name + ".gate", width, options_.bias, deviation) : x;
    const ValueId y = b.linear(x, name + ".fc", width, options_.bias, deviation);
    if (gated) return b.mul(b.mul(gate, b.sigmoid(gate)), y);
    return b.gelu(y, options_.mlp == "gelu_tanh");
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Gpt)
