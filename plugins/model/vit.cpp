#include <cmath>
#include <optional>

#include <ATen/ops/ones.h>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

#include "checks.hpp"

namespace {

using namespace trainyard;

/// ViT (Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021, section 3.1): squares of the image through a
/// linear layer (a convolution as wide as its stride), learned positions, blocks with layer norm before attention and
/// before the MLP, one layer norm more, and a linear layer on the class token.
class Vit final : public Model {
 public:
  struct Options {
    std::int64_t patch = 4;
    std::int64_t n_layer = 6;
    std::int64_t n_head = 4;
    std::int64_t d_model = 128;
    std::optional<std::int64_t> mlp_width;
    std::string mlp = "gelu";
    std::string pool = "token";
    double norm_eps = 1e-6;
  };
  static void describe(Manifest<Options>& m) {
    m.name("vit").version("1.0.0").summary("Vision transformer: attention among squares of an image.");
    m.provides("graph");
    m.option("patch", &Options::patch, "pixels of a square's side; divides height and width of the image")
        .range(1, 1 << 16);
    m.option("n_layer", &Options::n_layer, "blocks of attention and MLP").range(1, 1 << 16);
    m.option("n_head", &Options::n_head, "attention heads; divides d_model").min(1);
    m.option("d_model", &Options::d_model, "width").min(1);
    m.option("mlp_width", &Options::mlp_width, "inner width of the MLP; left out: 4 d_model")
        .range(1, 1 << 20);
    m.option("mlp", &Options::mlp, "activation between its two layers: by the error function, or by tanh")
        .one_of({"gelu", "gelu_tanh"});
    m.option(
         "pool", &Options::pool,
         "what the last layer sees: a token of its own, which is learned and stands ahead of the squares, "
         "or the mean over the squares, which then stand alone")
        .one_of({"token", "mean"});
    m.option("norm_eps", &Options::norm_eps, "is added to the variance").above(0.0);
  }
  explicit Vit(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    models::require_image(context.schema);
    check(context.schema.inputs.front().shape);

    GraphBuilder b(context.schema, context.seed);
    ValueId x = embedded(b);
    const std::int64_t time = b.shape(x)[1];
    // Rows of [batch x time, width] from here on; attention alone needs to know the samples apart.
    x = b.dropout(b.flatten(x, 2), "drop");
    for (std::int64_t layer = 0; layer < options_.n_layer; ++layer)
      x = block(b, x, "h." + std::to_string(layer), time);
    x = b.linear(pooled(b, x, time), "head", models::outputs(context.schema));
    return std::make_unique<GraphNetwork>(b.finish(x));
  }

 private:
  static constexpr double deviation = 0.02;

  bool has_token() const { return options_.pool == "token"; }

  void check(const std::vector<std::int64_t>& image) const {
    if (options_.d_model % options_.n_head != 0)
      throw ConfigError("model.n_head = " + std::to_string(options_.n_head) +
                        " does not divide model.d_model = " + std::to_string(options_.d_model));
    if (image[1] % options_.patch != 0 || image[2] % options_.patch != 0)
      throw ConfigError("model.patch = " + std::to_string(options_.patch) +
                        " does not divide height and width of the data's images, " + shape_text(image) +
                        ": choose a patch that does");
  }

  /// [batch, squares (and the token ahead of them), width], with positions.
  ValueId embedded(GraphBuilder& b) const {
    const std::int64_t width = options_.d_model;
    const double bound =
        1.0 / std::sqrt(static_cast<double>(b.shape(b.input())[1] * options_.patch * options_.patch));
    ValueId x = b.conv2d(b.input(), "patch", width,
                         {.kernel = options_.patch, .stride = options_.patch, .deviation = bound});
    x = b.transpose(b.reshape(x, {0, width, -1}), {0, 2, 1});
    const std::int64_t squares = b.shape(x)[1];
    if (!has_token()) return b.add(x, b.normal_parameter("pos", {1, squares, width}, deviation));
    // A row of zeros ahead of each sample's, to which the token is added with its position.
    const ValueId token = b.normal_parameter("cls", {1, 1, width}, deviation);
    const ValueId places = b.normal_parameter("pos", {1, squares + 1, width}, deviation);
    const ValueId ahead = b.add(b.pad(token, 1, 0, squares), places);
    return b.add(b.pad(x, 1, 1, 0), ahead);
  }

  ValueId block(GraphBuilder& b, ValueId x, const std::string& name, std::int64_t time) const {
    const std::int64_t width = options_.d_model;
    ValueId y = b.linear(norm(b, x, name + ".ln_1"), name + ".attn.qkv", 3 * width, true, deviation);
    const std::vector<ValueId> qkv = b.split(b.reshape(y, {-1, time, 3 * width}), 3, 2);
    y = b.flatten(b.attention(qkv[0], qkv[1], qkv[2], name + ".attn", options_.n_head, false), 2);
    y = b.linear(y, name + ".attn.proj", width, true, deviation);
    x = b.add(x, b.dropout(y, name + ".attn.drop"));

    const std::int64_t inner = options_.mlp_width.value_or(4 * width);
    y = b.linear(norm(b, x, name + ".ln_2"), name + ".mlp.fc", inner, true, deviation);
    y = b.linear(b.gelu(y, options_.mlp == "gelu_tanh"), name + ".mlp.proj", width, true, deviation);
    return b.add(x, b.dropout(y, name + ".mlp.drop"));
  }

  ValueId norm(GraphBuilder& b, ValueId x, const std::string& name) const {
    return b.layer_norm(x, name, options_.norm_eps);
  }

  /// [batch, width]. Layer norm looks at rows alone, so that the token's is enough.
  ValueId pooled(GraphBuilder& b, ValueId x, std::int64_t time) const {
    x = b.reshape(x, {-1, time, options_.d_model});
    if (has_token()) return norm(b, b.flatten(b.slice(x, 1, 0, 1)), "ln_f");
    const ValueId axes = b.constant("mean.axes", at::ones({1}, at::kLong));
    return b.node("ReduceMean", "mean", {norm(b, x, "ln_f"), axes}, {{"keepdims", std::int64_t{0}}});
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Vit)
