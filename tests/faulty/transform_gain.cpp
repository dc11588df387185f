// Multiplies what a layer gives by numbers that are learned: the least that a transform can be that trains.
#include <algorithm>

#include <ATen/ops/full.h>

#include <trainyard/error.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/transform.hpp>

namespace {

using namespace trainyard;

class Gain final : public Transform {
 public:
  struct Options {
    std::string layer = "fc1";
    double start = 1.0;
    std::string fault;
  };
  static void describe(Manifest<Options>& m) {
    m.name("gain").version("1.0.0").summary("Multiplies what a layer gives by numbers that are learned.");
    m.needs("graph");
    m.option("layer", &Options::layer, "name of a linear layer");
    m.option("start", &Options::start, "at first, each of them").range(-10, 10);
    m.option("fault", &Options::fault, "what it does wrong").one_of({"", "nothing", "no graph", "throw"});
  }
  explicit Gain(const Options& options) : options_(options) {}

  std::unique_ptr<Network> apply(std::unique_ptr<Network> network, const ModelContext&) const override {
    if (options_.fault == "nothing") return nullptr;
    if (options_.fault == "throw") throw PluginError("thrown on purpose");
    if (options_.fault == "no graph") return std::make_unique<Bare>(std::move(network));
    Graph graph = *network->graph();
    const auto node = std::ranges::find(graph.nodes, options_.layer, &Node::name);
    if (node == graph.nodes.end() || node->op != "Gemm")
      throw ConfigError("layer = \"" + options_.layer + "\" is no linear layer of the network");
    const ValueId result = node->outputs[0];
    const std::string name = options_.layer + ".gain";
    GraphValue before = graph.values[static_cast<std::size_t>(result)];
    const ValueId gain = graph.add_value({.name = name,
                                          .shape = {},
                                          .initializer = at::full({before.shape.back()}, options_.start),
                                          .trainable = true});
    before.name = options_.layer + ".ungained";
    node->outputs[0] = graph.add_value(std::move(before));
    graph.nodes.insert(node + 1, {.op = "Mul",
                                  .name = name,
                                  .inputs = {node->outputs[0], gain},
                                  .outputs = {result},
                                  .attributes = {}});
    graph.infer_shapes();
    return std::make_unique<GraphNetwork>(std::move(graph));
  }

 private:
  /// The same network, whose graph nobody sees.
  class Bare final : public Network {
   public:
    explicit Bare(std::unique_ptr<Network> network) : network_(std::move(network)) {}
    at::Tensor forward(const Batch& batch, const ForwardContext& context) override {
      return network_->forward(batch, context);
    }
    std::vector<NamedTensor> parameters() const override { return network_->parameters(); }
    std::vector<NamedTensor> buffers() const override { return network_->buffers(); }
    std::vector<std::int64_t> output_shape() const override { return network_->output_shape(); }
    void to(at::Device device) override { network_->to(device); }

   private:
    std::unique_ptr<Network> network_;
  };

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Gain)
