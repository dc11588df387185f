#include <algorithm>
#include <optional>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

#include "checks.hpp"

namespace {

using namespace trainyard;

/// One [[model.layers]] table. Which options a layer takes is in `layer_types`.
struct Layer {
  std::string type;
  std::optional<std::string> name;
  std::optional<std::int64_t> out, kernel, stride, padding, groups, axis;
  std::optional<double> epsilon, momentum, alpha;
  std::optional<bool> bias;

  static void describe(Fields<Layer>& f);

  /// Names of the options that were given, without type.
  std::vector<std::string> given() const {
    std::vector<std::string> names;
    const auto note = [&](const char* option, const auto& value) {
      if (value) names.emplace_back(option);
    };
    note("name", name);
    note("out", out);
    note("kernel", kernel);
    note("stride", stride);
    note("padding", padding);
    note("groups", groups);
    note("axis", axis);
    note("epsilon", epsilon);
    note("momentum", momentum);
    note("alpha", alpha);
    note("bias", bias);
    return names;
  }
};

struct LayerType {
  const char* name;
  std::vector<std::string> required, optional;
  ValueId (*add)(GraphBuilder&, ValueId x, const Layer&, const std::string& name, const BatchSchema&);
};

const LayerType layer_types[] = {
    {"average_pool",
     {"kernel"},
     {"stride"},
     [](GraphBuilder& b, ValueId x, const Layer& l, const std::string&, const BatchSchema&) {
       return b.average_pool2d(x, *l.kernel, l.stride.value_or(*l.kernel));
     }},
    {"batch_norm",
     {},
     {"name", "epsilon", "momentum"},
     [](GraphBuilder& b, ValueId x, const Layer& l, const std::string& name, const BatchSchema&) {
       return b.batch_norm(x, name, l.epsilon.value_or(1e-5), l.momentum.value_or(0.1));
     }},
    {"conv2d",
     {"out", "kernel"},
     {"name", "stride", "padding", "groups", "bias"},
     [](GraphBuilder& b, ValueId x, const Layer& l, const std::string& name, const BatchSchema&) {
       return b.conv2d(x, name, *l.out,
                       {.kernel = *l.kernel,
                        .stride = l.stride.value_or(1),
                        .padding = l.padding.value_or(0),
                        .groups = l.groups.value_or(1),
                        .bias = l.bias.value_or(true)});
     }},
    {"dropout",
     {},
     {"name", "axis"},
     [](GraphBuilder& b, ValueId x, const Layer& l, const std::string& name, const BatchSchema&) {
       return b.dropout(x, name, l.axis.value_or(1));
     }},
    {"elu",
     {},
     {"name", "alpha"},
     [](GraphBuilder& b, ValueId x, const Layer& l, const std::string& name, const BatchSchema&) {
       return b.node("Elu", name, {x}, {{"alpha", l.alpha.value_or(1.0)}});
     }},
    {"embedding",
     {"out"},
     {"name"},
     [](GraphBuilder& b, ValueId x, const Layer& l, const std::string& name, const BatchSchema& schema) {
       models::require_tokens(schema);
       return b.embedding(x, name, schema.vocabulary, *l.out).output;
     }},
    {"flatten",
     {},
     {"axis"},
     [](GraphBuilder& b, ValueId x, const Layer& l, const std::string&, const BatchSchema&) {
       return b.flatten(x, l.axis.value_or(1));
     }},
    {"gelu",
     {},
     {},
     [](GraphBuilder& b, ValueId x, const Layer&, const std::string&, const BatchSchema&) {
       return b.gelu(x);
     }},
    {"global_average_pool",
     {},
     {},
     [](GraphBuilder& b, ValueId x, const Layer&, const std::string&, const BatchSchema&) {
       return b.flatten(b.global_average_pool(x));
     }},
    {"layer_norm",
     {},
     {"name", "epsilon"},
     [](GraphBuilder& b, ValueId x, const Layer& l, const std::string& name, const BatchSchema&) {
       return b.layer_norm(x, name, l.epsilon.value_or(1e-5));
     }},
    {"leaky_relu",
     {},
     {"name", "alpha"},
     [](GraphBuilder& b, ValueId x, const Layer& l, const std::string& name, const BatchSchema&) {
       return b.node("LeakyRelu", name, {x}, {{"alpha", l.alpha.value_or(0.01)}});
     }},
    {"linear",
     {"out"},
     {"name", "bias"},
     [](GraphBuilder& b, ValueId x, const Layer& l, const std::string& name, const BatchSchema&) {
       return b.linear(x, name, *l.out, l.bias.value_or(true));
     }},
    {"lstm",
     {"out"},
     {"name"},
     [](GraphBuilder& b, ValueId x, const Layer& l, const std::string& name, const BatchSchema&) {
       return b.lstm(x, name, *l.out);
     }},
    {"max_pool",
     {"kernel"},
     {"stride", "padding"},
     [](GraphBuilder& b, ValueId x, const Layer& l, const std::string&, const BatchSchema&) {
       return b.max_pool2d(x, *l.kernel, l.stride.value_or(*l.kernel), l.padding.value_or(0));
     }},
    {"relu",
     {},
     {},
     [](GraphBuilder& b, ValueId x, const Layer&, const std::string&, const BatchSchema&) {
       return b.relu(x);
     }},
    {"selu",
     {},
     {},
     [](GraphBuilder& b, ValueId x, const Layer&, const std::string&, const BatchSchema&) {
       return b.node("Selu", {}, {x});
     }},
    {"sigmoid",
     {},
     {},
     [](GraphBuilder& b, ValueId x, const Layer&, const std::string&, const BatchSchema&) {
       return b.sigmoid(x);
     }},
    {"tanh",
     {},
     {},
     [](GraphBuilder& b, ValueId x, const Layer&, const std::string&, const BatchSchema&) {
       return b.tanh(x);
     }},
};

void Layer::describe(Fields<Layer>& f) {
  std::vector<std::string> types;
  for (const LayerType& type : layer_types) types.emplace_back(type.name);
  f.option("type", &Layer::type, "kind of the layer").one_of(types).required();
  f.option("name", &Layer::name,
           "of a layer with parameters, or of a dropout site; left out: type and index, \"linear0\"");
  f.option("out", &Layer::out, "output width or channels: linear, conv2d, embedding, lstm").min(1);
  f.option("kernel", &Layer::kernel, "side of the window: conv2d, max_pool, average_pool").min(1);
  f.option("stride", &Layer::stride, "step of the window; a pool's is its kernel where left out").min(1);
  f.option("padding", &Layer::padding, "zeros around the image: conv2d, max_pool").min(0);
  f.option("groups", &Layer::groups, "of channels that do not mix: conv2d").min(1);
  f.option("axis", &Layer::axis, "first axis that flatten joins, or the feature axis of dropout");
  f.option("epsilon", &Layer::epsilon, "added to the variance: batch_norm, layer_norm").above(0);
  f.option("momentum", &Layer::momentum, "share of the new statistics: batch_norm").range(0, 1);
  f.option("alpha", &Layer::alpha, "slope or scale below zero: leaky_relu, elu");
  f.option("bias", &Layer::bias, "whether a bias is added: linear, conv2d");
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

const LayerType& type_of(const Layer& layer) {
  const auto found =
      std::ranges::find_if(layer_types, [&](const LayerType& type) { return layer.type == type.name; });
  if (found == std::end(layer_types)) throw ConfigError("unknown type");
  return *found;
}

void check_options(const Layer& layer, const LayerType& type) {
  const std::vector<std::string> given = layer.given();
  std::vector<std::string> allowed = type.required;
  allowed.insert(allowed.end(), type.optional.begin(), type.optional.end());
  for (const std::string& option : given)
    if (std::ranges::find(allowed, option) == allowed.end())
      throw ConfigError("does not take `" + option + "`; takes: " + joined(allowed));
  for (const std::string& option : type.required)
    if (std::ranges::find(given, option) == given.end()) throw ConfigError("needs `" + option + "`");
}

class Sequential final : public Model {
 public:
  struct Options {
    std::vector<Layer> layers;
  };
  static void describe(Manifest<Options>& m) {
    m.name("sequential").version("1.0.0").summary("Layers one after another, as the run file lists them.");
    m.provides("graph");
    m.option("layers", &Options::layers, "[[model.layers]] tables, first to last").required();
  }
  explicit Sequential(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    if (options_.layers.empty()) throw ConfigError("model.layers is empty, needs one layer or more");
    models::require_rows(context.schema);
    GraphBuilder b(context.schema, context.seed);
    ValueId x = b.input();
    std::string place;
    for (std::size_t i = 0; i < options_.layers.size(); ++i) {
      const Layer& layer = options_.layers[i];
      place = "model.layers[" + std::to_string(i) + "] (" + layer.type + ")";
      try {
        const LayerType& type = type_of(layer);
        check_options(layer, type);
        x = type.add(b, x, layer, layer.name.value_or(layer.type + std::to_string(i)), context.schema);
      } catch (const ConfigError& error) {
        throw ConfigError(place + ": " + error.what());
      }
    }
    const std::int64_t given = b.shape(x).back(), wanted = models::outputs(context.schema);
    if (!models::fits(given, context.schema))
      throw ConfigError(place + " gives " + std::to_string(given) + " outputs, but the data has " +
                        std::to_string(wanted) +
                        (context.schema.classes > 0 ? " classes" : " numbers a target") +
                        ": the last layer must give as many");
    return std::make_unique<GraphNetwork>(b.finish(x));
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Sequential)
