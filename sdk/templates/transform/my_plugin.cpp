#include <trainyard/graph/network.hpp>
#include <trainyard/transform.hpp>

/// Takes an activation out wherever it stands: what it gave is what it was given.
class MyPlugin final : public trainyard::Transform {
 public:
  struct Options {
    std::string op = "Relu";
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("Takes an activation out of the network.");
    m.option("op", &Options::op, "the ONNX operator").one_of({"Relu", "Gelu", "Sigmoid", "Tanh"});
    m.needs("graph");
  }
  explicit MyPlugin(const Options& options) : options_(options) {}

  std::unique_ptr<trainyard::Network> apply(std::unique_ptr<trainyard::Network> network,
                                            const trainyard::ModelContext&) const override {
    trainyard::Graph graph = *network->graph();
    for (trainyard::Node& node : graph.nodes)
      if (node.op == options_.op) node.op = "Identity";
    return std::make_unique<trainyard::GraphNetwork>(std::move(graph));
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(MyPlugin)
