// Networks with branches, and a chain, for tools/bench/partitioned.py.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/model.hpp>

namespace branches {
enum class Form : std::uint8_t { towers, inception, heads, chain };
}  // namespace branches

template <>
struct trainyard::Words<branches::Form> {
  static constexpr std::string_view words[] = {"towers", "inception", "heads", "chain"};
};

namespace {

using namespace trainyard;
using branches::Form;

class Branches final : public Model {
 public:
  struct Options {
    Form form = Form::towers;
    std::int64_t width = 64, count = 8, depth = 4;
  };
  static void describe(Manifest<Options>& m) {
    m.name("branches").version("1.0.0").summary("Networks with branches, and a chain.");
    m.provides("graph");
    m.option("form", &Options::form,
             "towers side by side; blocks of convolutions; a trunk with heads; a chain");
    m.option("width", &Options::width, "of layers").min(1);
    m.option("count", &Options::count, "branches").min(1);
    m.option("depth", &Options::depth, "layers of each").min(1);
  }
  explicit Branches(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    GraphBuilder b(context.schema, context.seed);
    const ValueId out = options_.form == Form::inception ? blocks(b) : layers(b);
    return std::make_unique<GraphNetwork>(b.finish(b.linear(out, "out", context.schema.classes)));
  }

 private:
  ValueId chain(GraphBuilder& b, ValueId x, const std::string& name, std::int64_t depth) const {
    for (std::int64_t d = 0; d < depth; ++d)
      x = b.relu(b.linear(x, name + ".l" + std::to_string(d), options_.width));
    return x;
  }

  ValueId layers(GraphBuilder& b) const {
    if (options_.form == Form::chain) return chain(b, b.input(), "chain", options_.count * options_.depth);
    const ValueId x = options_.form == Form::heads ? chain(b, b.input(), "trunk", options_.depth) : b.input();
    std::vector<ValueId> ends;
    for (std::int64_t i = 0; i < options_.count; ++i)
      ends.push_back(chain(b, x, "branch" + std::to_string(i), options_.depth));
    return b.concat(ends, 1);
  }

  /// Four branches (Szegedy et al., "Going deeper with convolutions", CVPR 2015, figure 2b).
  ValueId blocks(GraphBuilder& b) const {
    const std::int64_t width = options_.width;
    const auto unit = [&](ValueId x, const std::string& name, std::int64_t out, std::int64_t kernel) {
      return b.relu(b.conv2d(x, name, out, {.kernel = kernel, .padding = kernel / 2}));
    };
    ValueId x = b.input();
    for (std::int64_t i = 0; i < options_.depth; ++i) {
      const std::string name = "block" + std::to_string(i);
      x = b.concat({unit(x, name + ".one", width, 1),
                    unit(unit(x, name + ".three.in", width, 1), name + ".three", width, 3),
                    unit(unit(x, name + ".five.in", width / 2, 1), name + ".five", width, 5),
                    unit(b.max_pool2d(x, 3, 1, 1), name + ".pool", width, 1)},
                   1);
    }
    return b.flatten(b.global_average_pool(x));
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Branches)
