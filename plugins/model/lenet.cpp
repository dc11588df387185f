#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

#include "checks.hpp"

namespace {

using namespace trainyard;

/// LeNet-5 (LeCun et al., "Gradient-based learning applied to document recognition", 1998, section II.B) with
/// rectified units and max pooling, as it is used today. 28x28 images padded by 2 give the paper's 32x32.
class LeNet final : public Model {
 public:
  struct Options {
    std::vector<std::int64_t> channels = {6, 16};
    std::vector<std::int64_t> hidden = {120, 84};
    std::int64_t padding = 2;
  };
  static void describe(Manifest<Options>& m) {
    m.name("lenet").version("1.0.0").summary(
        "LeNet-5: two 5x5 convolutions with pooling, then fully connected layers, a dropout site after each "
        "hidden one.");
    m.provides("graph");
    m.option("channels", &Options::channels, "of the two convolutions").min(1);
    m.option("hidden", &Options::hidden, "widths of the hidden fully connected layers").min(1);
    m.option("padding", &Options::padding, "pixels around the image").range(0, 2);
  }
  explicit LeNet(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    models::require_image(context.schema);
    if (options_.channels.size() != 2)
      throw ConfigError("model.channels has " + std::to_string(options_.channels.size()) +
                        " numbers, needs two: one a convolution");

    GraphBuilder b(context.schema, context.seed);
    ValueId x =
        b.conv2d(b.input(), "conv1", options_.channels[0], {.kernel = 5, .padding = options_.padding});
    x = b.max_pool2d(b.relu(x), 2, 2);
    x = b.conv2d(x, "conv2", options_.channels[1], {.kernel = 5});
    x = b.flatten(b.max_pool2d(b.relu(x), 2, 2));
    std::size_t layer = 0;
    for (const std::int64_t width : options_.hidden) {
      const std::string name = "fc" + std::to_string(++layer);
      x = b.dropout(b.relu(b.linear(x, name, width)), name + ".dropout");
    }
    x = b.linear(x, "fc" + std::to_string(layer + 1), models::outputs(context.schema));
    return std::make_unique<GraphNetwork>(b.finish(x));
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(LeNet)
