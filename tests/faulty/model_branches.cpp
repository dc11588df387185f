// Layers side by side on one input, which tensat makes one of. It does nothing wrong.
#include <cstdint>
#include <string>
#include <vector>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

namespace {

using namespace trainyard;

class Branches final : public Model {
 public:
  struct Options {
    std::int64_t count = 12, width = 4;
  };
  static void describe(Manifest<Options>& m) {
    m.name("branches").version("1.0.0").summary("Layers side by side on one input.");
    m.provides("graph");
    m.option("count", &Options::count, "layers").range(1, 64);
    m.option("width", &Options::width, "outputs of each").range(1, 4096);
  }
  explicit Branches(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    GraphBuilder b(context.schema, context.seed);
    const ValueId x = b.flatten(b.input());
    std::vector<ValueId> all;
    for (std::int64_t i = 0; i < options_.count; ++i)
      all.push_back(b.relu(b.linear(x, "branch" + std::to_string(i), options_.width)));
    return std::make_unique<GraphNetwork>(
        b.finish(b.linear(all.size() == 1 ? all[0] : b.concat(all, 1), "out", context.schema.classes)));
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Branches)
