// Gradient-boosted trees (Friedman, Annals of Statistics 2001) by XGBoost (Chen and Guestrin, "XGBoost: A Scalable Tree
// Boosting System", KDD 2016), whose histograms grow them.
#include <optional>

#include <trainyard/model.hpp>

#include "../checks.hpp"
#include "network.hpp"

namespace {

using namespace trainyard;

class Trees final : public Model {
 public:
  struct Options : trees::Growth {
    std::optional<std::int64_t> outputs;
  };
  static void describe(Manifest<Options>& m) {
    m.name("trees").version("1.0.0").summary(
        "Gradient-boosted trees, grown by XGBoost's histograms; each step adds one an output. For tables.");
    m.provides("grows");
    m.needs("executor.type = boosting").needs("rows").needs("fp32").needs("run.device = cpu");
    m.option("max_leaves", &Options::max_leaves,
             "most leaves of a tree, which grows where it gains most; 0: level by level, to max_depth")
        .range(0, 1 << 16)
        .also({"num_leaves"});
    m.option("max_depth", &Options::max_depth, "most splits on the way to a leaf; 0: any number")
        .range(0, 64);
    m.option("max_bin", &Options::max_bin, "most intervals of a feature, between which a split lies")
        .range(2, 65535);
    m.option("min_child_weight", &Options::min_child_weight, "least sum of second derivatives in a leaf")
        .min(0.0);
    m.option("min_gain", &Options::min_gain, "least gain of a split")
        .min(0.0)
        .also({"gamma", "min_split_loss"});
    m.option("l1", &Options::l1, "L1 penalty of leaves' values").min(0.0).also({"alpha", "reg_alpha"});
    m.option("l2", &Options::l2, "L2 penalty of leaves' values").min(0.0).also({"lambda", "reg_lambda"});
    m.option("row_sample", &Options::row_sample, "share of the rows that a round sees, drawn by run.seed")
        .above(0.0)
        .max(1.0)
        .also({"subsample"});
    m.option("column_sample", &Options::column_sample,
             "share of the features that the trees of a round see, drawn alike")
        .above(0.0)
        .max(1.0)
        .also({"colsample_bytree"});
    m.option("mirrored", &Options::mirrored,
             "of two classes: a round grows one tree, whose values are the second logit and, with the "
             "opposite sign, the first, "
             "which halves its cost; for a loss that takes the difference of both, as cross_entropy does. "
             "With "
             "more classes each logit has trees of its own");
    m.option("outputs", &Options::outputs,
             "numbers a sample, each with trees of its own; left out: a logit a class, or the target's. 1: "
             "of two "
             "classes the logit of the second, for bce_with_logits")
        .min(1);
  }
  explicit Trees(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    const BatchSchema& schema = context.schema;
    models::require_floating(schema);
    if (schema.inputs.size() != 1)
      throw ConfigError("the data has " + std::to_string(schema.inputs.size()) +
                        " inputs, and trees take one: a row of numbers a sample");
    if (options_.max_leaves == 0 && options_.max_depth == 0)
      throw ConfigError(
          "model.max_leaves and model.max_depth are both 0: a tree would grow without end; bound one of "
          "them");
    if (options_.max_leaves == 1)
      throw ConfigError("model.max_leaves is 1: a tree of one leaf tells nothing apart; set 2 or more");
    std::int64_t features = 1;
    for (const std::int64_t length : schema.inputs.front().shape) features *= length;
    return std::make_unique<trees::TreesNetwork>(options_, features, output_shape(schema), context.seed);
  }

 private:
  std::vector<std::int64_t> output_shape(const BatchSchema& schema) const {
    if (options_.outputs) {
      models::require_outputs("model.outputs", *options_.outputs, schema);
      return {*options_.outputs};
    }
    if (schema.classes > 0) return {schema.classes};
    return schema.target.shape.empty() ? std::vector<std::int64_t>{1} : schema.target.shape;
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Trees)
