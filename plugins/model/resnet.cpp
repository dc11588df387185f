#include <cmath>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

#include "checks.hpp"

namespace {

using namespace trainyard;

/// The residual networks for CIFAR (He et al., "Deep residual learning for image recognition", CVPR 2016,
/// section 4.2): a 3x3 convolution, three stages of n blocks with width, 2 width and 4 width channels, global
/// average pooling and a linear layer. Weights as in "Delving deep into rectifiers" (2015), section 2.2, over
/// the fan out.
///
/// With activation "pre" blocks begin with norm and ReLU, which nothing follows: He et al., "Identity mappings in deep
/// residual networks", ECCV 2016, figure 1 (b) and appendix. Group norm: Wu and He, ECCV 2018, which sees one sample.
class ResNet final : public Model {
 public:
  struct Options {
    std::int64_t depth = 20;
    std::int64_t width = 16;
    std::string shortcut = "identity";
    std::string activation = "post";
    std::string norm = "batch";
    std::int64_t groups = 4;
    std::string dropout_sites = "pool";
  };
  static void describe(Manifest<Options>& m) {
    m.name("resnet").version("1.0.0").summary("CIFAR-style residual network of depth 6n + 2.");
    m.provides("graph").provides("batch_norm where norm = batch");
    m.option("depth", &Options::depth, "layers with weights: 8, 14, 20, 32, 44, 56, 110").range(8, 1 << 16);
    m.option("width", &Options::width, "channels of the first stage").min(1);
    m.option("shortcut", &Options::shortcut,
             "where a stage changes the shape: every second pixel and zero channels (option A of the paper), "
             "or a "
             "strided 1x1 convolution with a norm (option B)")
        .one_of({"identity", "projection"});
    m.option("activation", &Options::activation,
             "norm and ReLU behind each convolution and the sum, or ahead of the convolutions")
        .one_of({"post", "pre"});
    m.option("norm", &Options::norm, "over the batch, or over groups of channels of each sample")
        .one_of({"batch", "group"});
    m.option("groups", &Options::groups, "with norm = \"group\": into which width divides").min(1);
    m.option(
         "dropout_sites", &Options::dropout_sites,
         "where dropout may act: on the pooled features, on the image after each block (DropBlock), or at "
         "the end of each residual branch (drop path)")
        .one_of({"pool", "blocks", "branches"});
  }
  explicit ResNet(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    models::require_image(context.schema);
    if ((options_.depth - 2) % 6 != 0) {
      const std::int64_t below = (options_.depth - 2) / 6 * 6 + 2;
      throw ConfigError("model.depth is " + std::to_string(options_.depth) + ", needs 6n + 2: set " +
                        std::to_string(below) + " or " + std::to_string(below + 6));
    }
    if (options_.norm == "group" && options_.width % options_.groups != 0)
      throw ConfigError("model.width is " + std::to_string(options_.width) + ", and model.groups " +
                        std::to_string(options_.groups) + " does not divide it: take a groups that does");
    const std::int64_t blocks = (options_.depth - 2) / 6;

    GraphBuilder b(context.schema, context.seed);
    ValueId x = conv(b, b.input(), "conv1", options_.width, 3, 1);
    if (!pre()) x = b.relu(norm(b, x, "", "1"));
    for (std::int64_t stage = 0; stage < 3; ++stage)
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
        x = residual(b, x, name, options_.width << stage, stage > 0 && block == 0 ? 2 : 1);
        x = site(b, x, "blocks", name + ".dropout");
      }
    if (pre()) x = b.relu(norm(b, x, "", "1"));
    x = site(b, b.flatten(b.global_average_pool(x)), "pool", "pool.dropout");
    x = b.linear(x, "fc", models::outputs(context.schema));
    return std::make_unique<GraphNetwork>(b.finish(x));
  }

 private:
  bool pre() const { return options_.activation == "pre"; }

  /// Called PREFIXbnNUMBER, or gn.
  ValueId norm(GraphBuilder& b, ValueId x, const std::string& prefix, const std::string& number) const {
    if (options_.norm == "batch") return b.batch_norm(x, prefix + "bn" + number);
    const std::string name = prefix + "gn" + number;
    const std::int64_t channels = b.shape(x)[1];
    const ValueId weight = b.parameter(name + ".weight", at::ones({channels}));
    const ValueId bias = b.parameter(name + ".bias", at::zeros({channels}));
    return b.node("GroupNormalization", name, {x, weight, bias}, {{"num_groups", options_.groups}});
  }

  /// A dropout site where the option puts them there.
  ValueId site(GraphBuilder& b, ValueId x, const char* place, const std::string& name) const {
    return options_.dropout_sites == place ? b.dropout(x, name) : x;
  }

  static ValueId conv(GraphBuilder& b, ValueId x, const std::string& name, std::int64_t out,
                      std::int64_t kernel, std::int64_t stride) {
    const double deviation = std::sqrt(2.0 / static_cast<double>(out * kernel * kernel));
    return b.conv2d(
        x, name, out,
        {.kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = false, .deviation = deviation});
  }

  ValueId residual(GraphBuilder& b, ValueId x, const std::string& name, std::int64_t out,
                   std::int64_t stride) const {
    const ValueId in = pre() ? b.relu(norm(b, x, name + ".", "1")) : x;
    ValueId y = conv(b, in, name + ".conv1", out, 3, stride);
    y = b.relu(norm(b, y, name + ".", pre() ? "2" : "1"));
    y = conv(b, y, name + ".conv2", out, 3, 1);
    if (!pre()) y = norm(b, y, name + ".", "2");
    y = site(b, y, "branches", name + ".dropout");
    y = b.add(y, stride == 1 ? x : shortcut(b, x, in, name + ".shortcut", out));
    return pre() ? y : b.relu(y);
  }

  /// `in`: what the block's first convolution sees.
  ValueId shortcut(GraphBuilder& b, ValueId x, ValueId in, const std::string& name, std::int64_t out) const {
    if (options_.shortcut == "projection") {
      const ValueId projected = conv(b, in, name + ".conv", out, 1, 2);
      return pre() ? projected : norm(b, projected, name + ".", "");
    }
    const std::int64_t channels = b.shape(x)[1], height = b.shape(x)[2], width = b.shape(x)[3];
    x = b.slice(b.slice(x, 2, 0, height, 2), 3, 0, width, 2);
    const std::int64_t before = (out - channels) / 2;
    return b.pad(x, 1, before, out - channels - before);
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(ResNet)
