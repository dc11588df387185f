#include <string>

#include <ATen/ops/ones.h>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

#include "checks.hpp"

namespace {

using namespace trainyard;

/// x <- x + relu(W norm(x) + b), block after block (He et al., "Identity Mappings in Deep Residual Networks", ECCV
/// 2016, with layer normalisation in place of that over batches).
class ResidualMlp final : public Model {
 public:
  struct Options {
    std::int64_t width = 64;
    std::int64_t blocks = 8;
  };
  static void describe(Manifest<Options>& m) {
    m.name("residual_mlp")
        .version("1.0.0")
        .summary(
            "Fully connected residual blocks behind layer normalisation without weights; flattens its "
            "input.");
    m.provides("graph");
    m.option("width", &Options::width, "of every block").min(1);
    m.option("blocks", &Options::blocks, "between the first layer and the last").min(0);
  }
  explicit ResidualMlp(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    models::require_floating(context.schema);
    GraphBuilder b(context.schema, context.seed);
    ValueId x = b.input();
    if (b.shape(x).size() != 2) x = b.flatten(x);
    x = b.linear(x, "first", options_.width);
    const ValueId ones = b.constant("ones", at::ones({options_.width}));
    for (std::int64_t i = 0; i < options_.blocks; ++i) {
      const std::string name = "block" + std::to_string(i);
      const ValueId normed = b.node("LayerNormalization", name + ".norm", {x, ones},
                                    {{"axis", std::int64_t{-1}}, {"epsilon", 1e-5}});
      x = b.add(x, b.relu(b.linear(normed, name + ".fc", options_.width)));
    }
    return std::make_unique<GraphNetwork>(b.finish(b.linear(x, "last", models::outputs(context.schema))));
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(ResidualMlp)
