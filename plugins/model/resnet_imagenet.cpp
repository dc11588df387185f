#include <cmath>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

#include "checks.hpp"

namespace {

using namespace trainyard;

/// How many blocks the four stages of a depth have (He et al., table 1), and of how many convolutions a block is.
struct Stages {
  std::int64_t depth;
  std::int64_t blocks[4];
  bool bottleneck;
};
constexpr Stages known_depths[] = {
    {18, {2, 2, 2, 2}, false},  {34, {3, 4, 6, 3}, false},  {50, {3, 4, 6, 3}, true},
    {101, {3, 4, 23, 3}, true}, {152, {3, 8, 36, 3}, true},
};

/// The residual networks for ImageNet (He et al., "Deep residual learning for image recognition", CVPR 2016, section
/// 4.1): a 7x7 convolution and pooling, four stages, global average pooling and a linear layer. In a bottleneck the
/// 3x3 convolution has the stride, as torchvision's weights want it. Names are those of torchvision.
class ResNetImageNet final : public Model {
 public:
  struct Options {
    std::int64_t depth = 18;
    std::int64_t width = 64;
  };
  static void describe(Manifest<Options>& m) {
    m.name("resnet_imagenet")
        .version("1.0.0")
        .summary("Residual network for large images: ResNet-18 to 152.");
    m.provides("graph").provides("batch_norm");
    m.option("depth", &Options::depth, "layers with weights: 18, 34, 50, 101, 152").range(18, 152);
    m.option("width", &Options::width, "channels of the first stage").range(1, 1 << 16);
  }
  explicit ResNetImageNet(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    models::require_image(context.schema);
    const Stages& stages = chosen();
    GraphBuilder b(context.schema, context.seed);
    ValueId x = b.relu(conv_norm(b, b.input(), "conv1", "bn1", options_.width, 7, 2));
    x = b.max_pool2d(x, 3, 2, 1);
    for (std::int64_t stage = 0; stage < 4; ++stage)
      for (std::int64_t block = 0; block < stages.blocks[stage]; ++block) {
        const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(block) + ".";
        const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
        x = residual(b, x, name, options_.width << stage, stride, stages.bottleneck);
      }
    x = b.dropout(b.flatten(b.global_average_pool(x)), "pool.dropout");
    return std::make_unique<GraphNetwork>(b.finish(b.linear(x, "fc", models::outputs(context.schema))));
  }

 private:
  const Stages& chosen() const {
    std::string all;
    for (const Stages& each : known_depths) {
      if (each.depth == options_.depth) return each;
      all += (all.empty() ? "" : ", ") + std::to_string(each.depth);
    }
    throw ConfigError("model.depth is " + std::to_string(options_.depth) + ", needs one of " + all +
                      "; the model resnet has those of 6n + 2 layers");
  }

  static ValueId conv_norm(GraphBuilder& b, ValueId x, const std::string& conv, const std::string& norm,
                           std::int64_t out, std::int64_t kernel, std::int64_t stride) {
    const double deviation = std::sqrt(2.0 / static_cast<double>(out * kernel * kernel));
    x = b.conv2d(
        x, conv, out,
        {.kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = false, .deviation = deviation});
    return b.batch_norm(x, norm);
  }

  static ValueId residual(GraphBuilder& b, ValueId x, const std::string& name, std::int64_t inner,
                          std::int64_t stride, bool bottleneck) {
    const std::int64_t out = bottleneck ? 4 * inner : inner;
    ValueId y = x;
    if (bottleneck) {
      y = b.relu(conv_norm(b, y, name + "conv1", name + "bn1", inner, 1, 1));
      y = b.relu(conv_norm(b, y, name + "conv2", name + "bn2", inner, 3, stride));
      y = conv_norm(b, y, name + "conv3", name + "bn3", out, 1, 1);
    } else {
      y = b.relu(conv_norm(b, y, name + "conv1", name + "bn1", inner, 3, stride));
      y = conv_norm(b, y, name + "conv2", name + "bn2", out, 3, 1);
    }
    if (stride != 1 || b.shape(x)[1] != out)
      x = conv_norm(b, x, name + "downsample.0", name + "downsample.1", out, 1, stride);
    return b.relu(b.add(y, x));
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(ResNetImageNet)
