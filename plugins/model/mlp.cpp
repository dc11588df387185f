#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

#include "checks.hpp"

namespace {

using namespace trainyard;

class Mlp final : public Model {
 public:
  struct Options {
    std::vector<std::int64_t> layers;
    std::optional<std::vector<std::int64_t>> hidden;
    std::string activation = "relu";
  };
  static void describe(Manifest<Options>& m) {
    m.name("mlp").version("1.0.0").summary(
        "Fully connected layers with a dropout site after each hidden one; flattens its input.");
    m.provides("graph");
    m.option("layers", &Options::layers, "widths from the data's features to its classes, both included")
        .min(1);
    m.option("hidden", &Options::hidden,
             "in place of layers the widths of the hidden ones, with none of them a linear model: the data "
             "says the others")
        .min(1);
    m.option("activation", &Options::activation, "between layers")
        .one_of({"relu", "gelu", "selu", "sigmoid", "tanh"});
  }
  explicit Mlp(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    models::require_floating(context.schema);
    if (options_.hidden.has_value() == !options_.layers.empty())
      throw ConfigError("model has " +
                        std::string(options_.hidden ? "both `layers` and" : "neither `layers` nor") +
                        " `hidden`: say layers = [features, ..., outputs], or the widths between them alone, "
                        "hidden = [64]");
    std::vector<std::int64_t> widths = options_.layers;
    if (!options_.hidden && widths.size() < 2)
      throw ConfigError("model.layers has " + std::to_string(widths.size()) +
                        " widths, needs two or more: the data's features, hidden widths, the outputs");

    GraphBuilder b(context.schema, context.seed);
    ValueId x = b.input();
    if (b.shape(x).size() != 2) x = b.flatten(x);
    if (options_.hidden) {
      widths = {b.shape(x)[1], models::outputs(context.schema)};
      widths.insert(widths.end() - 1, options_.hidden->begin(), options_.hidden->end());
    }
    models::require_equal("model.layers[0]", widths.front(), "the features of the data", b.shape(x)[1]);
    models::require_outputs("model.layers[" + std::to_string(widths.size() - 1) + "]", widths.back(),
                            context.schema);
    for (std::size_t i = 1; i < widths.size(); ++i) {
      const std::string name = "fc" + std::to_string(i);
      x = b.linear(x, name, widths[i]);
      if (i + 1 < widths.size()) x = b.dropout(activate(b, x), name + ".dropout");
    }
    return std::make_unique<GraphNetwork>(b.finish(x));
  }

 private:
  ValueId activate(GraphBuilder& b, ValueId x) const {
    if (options_.activation == "relu") return b.relu(x);
    if (options_.activation == "gelu") return b.gelu(x);
    if (options_.activation == "selu") return b.node("Selu", {}, {x});
    if (options_.activation == "sigmoid") return b.sigmoid(x);
    return b.tanh(x);
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Mlp)
