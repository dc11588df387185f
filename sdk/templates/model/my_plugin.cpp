#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

/// Classifies by two hidden layers, the second with a way around it.
class MyPlugin final : public trainyard::Model {
 public:
  struct Options {
    std::int64_t width = 32;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("Two hidden layers, the second with a way around it.");
    m.option("width", &Options::width, "of both hidden layers").range(1, 65536);
    m.provides("graph");
  }
  explicit MyPlugin(const Options& options) : options_(options) {}

  std::unique_ptr<trainyard::Network> build(const trainyard::ModelContext& context) const override {
    trainyard::GraphBuilder b(context.schema, context.seed);
    const auto first = b.relu(b.linear(b.flatten(b.input()), "fc1", options_.width));
    const auto second = b.add(first, b.relu(b.linear(first, "fc2", options_.width)));
    return std::make_unique<trainyard::GraphNetwork>(
        b.finish(b.linear(b.dropout(second, "fc2.dropout"), "fc3", context.schema.classes)));
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(MyPlugin)
