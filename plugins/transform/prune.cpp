// Gradual magnitude pruning (Zhu and Gupta, "To prune, or not to prune", 2017): ever more weights of the smallest magnitude
// are zero as the training goes on, and stay so.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/context.hpp>
#include <trainyard/error.hpp>
#include <trainyard/graph/graph.hpp>
#include <trainyard/pattern.hpp>
#include <trainyard/transform.hpp>

#include "annealing.hpp"
#include "masked.hpp"

namespace {

using namespace trainyard;
using transforms::Annealed, transforms::Annealing, transforms::Masked;

/// Returns the positions of a node's weights.
std::vector<std::size_t> weight_inputs(const Node& node) {
  if (node.op == "Gemm" || node.op == "MatMul" || node.op == "Conv" || node.op == "ConvTranspose") return {1};
  if (node.op == "LSTM" || node.op == "GRU" || node.op == "RNN") return {1, 2};
  return {};
}

/// Returns the names of the weights of layers that a pattern fits.
std::vector<std::string> weights_of(const Graph& graph, const std::string& pattern) {
  std::vector<std::string> found;
  for (const Node& node : graph.nodes)
    for (const std::size_t input : weight_inputs(node)) {
      const GraphValue& weight = graph.values[static_cast<std::size_t>(node.inputs[input])];
      if (fits(pattern, node.name) && weight.trainable) found.push_back(weight.name);
    }
  return found;
}

enum class KeptZeros : std::uint8_t { weights, all };

}  // namespace

template <>
struct trainyard::Words<KeptZeros> {
  static constexpr std::string_view words[] = {"weights", "all"};
};

namespace {

class Prune final : public Transform {
 public:
  struct Options {
    double ratio = 0.5;
    std::vector<std::string> layers = {"*"};
    std::string allocation = "global";
    KeptZeros zeros = KeptZeros::weights;
    Annealing sparse;
  };
  static void describe(Manifest<Options>& m) {
    m.name("prune").version("1.0.0").summary(
        "Takes weights of small magnitude away as the training goes on.");
    m.needs("graph").needs("steps").needs("no members").needs("no sharded_rows");
    m.option("ratio", &Options::ratio, "share of the layers' weights that is zero in the end")
        .min(0.0)
        .below(1.0);
    m.option("layers", &Options::layers,
             "names of linear, convolutional and recurrent layers, * and ? allowed");
    m.option("allocation", &Options::allocation,
             "global: the smallest of all weights; uniform: the same share of each layer's")
        .one_of({"global", "uniform"});
    m.option("zeros", &Options::zeros,
             "what stays zero where it is: the layers' weights, or all parameters, for a network that "
             "trainyard prune wrote");
    m.option("sparse", &Options::sparse, "when weights are taken away");
    m.hook<&Prune::find>(Event::model_ready);
    m.hook<&Prune::find>(Event::swap_in);
    m.hook<&Prune::note>(Event::batch_start);
    m.hook<&Prune::shrink>(Event::after_step).writes(Region::model).after("doped");
  }
  explicit Prune(const Options& options) : options_(options) {}

  /// The network stays as it is; it is seen here whether it has such layers.
  std::unique_ptr<Network> apply(std::unique_ptr<Network> network, const ModelContext&) const override {
    weights(*network->graph());
    return network;
  }

  void find(StepContext& context) {
    const Network& network = context.network();
    const std::vector<std::string> names = weights(*network.graph());
    annealed_.emplace(options_.sparse, options_.ratio, context.scale());
    masked_.clear();
    others_.reset();
    if (options_.allocation == "global")
      masked_.emplace_back(network, names);
    else
      for (const std::string& name : names) masked_.emplace_back(network, std::vector{name});
    if (options_.zeros == KeptZeros::weights) return;
    std::vector<std::string> others;
    for (const NamedTensor& each : network.parameters())
      if (std::ranges::find(names, each.name) == names.end()) others.push_back(each.name);
    others_.emplace(network, others);
  }

  void note(StepContext&) {
    for (Masked& each : masked_) each.note();
    if (others_) others_->note();
  }

  void shrink(StepContext& context) {
    const double left = 1.0 - annealed_->sparsity(context.step_number());
    if (others_) others_->enforce();
    for (Masked& each : masked_) {
      each.enforce();
      each.keep_largest(std::llround(left * static_cast<double>(each.size())));
    }
  }

 private:
  std::vector<std::string> weights(const Graph& graph) const {
    std::vector<std::string> all;
    for (const std::string& layer : options_.layers) {
      const std::vector<std::string> found = weights_of(graph, layer);
      if (found.empty())
        throw ConfigError("layers: \"" + layer +
                          "\" fits no linear, convolutional or recurrent layer whose weight is a parameter "
                          "(trainyard model show lists them)");
      for (const std::string& name : found)
        if (std::ranges::find(all, name) == all.end()) all.push_back(name);
    }
    return all;
  }

  Options options_;
  std::optional<Annealed> annealed_;
  std::vector<Masked> masked_;
  std::optional<Masked> others_;  ///< parameters whose zeros stay, and of which nothing is taken away
};

}  // namespace

TRAINYARD_PLUGIN(Prune)
