// Gradual magnitude pruning (Zhu and Gupta, "To prune, or not to prune", 2017): ever more weights of the smallest magnitude
// are zero as the training goes on, and stay so.
#include <cmath>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <ATen/ops/ones_like.h>

#include "../annealing.hpp"
#include "../masked.hpp"
#include "lib/printed.hpp"

#include <trainyard/context.hpp>
#include <trainyard/error.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/host.hpp>
#include <trainyard/pattern.hpp>
#include <trainyard/transform.hpp>

namespace {

using namespace trainyard;
using transforms::Annealed, transforms::Annealing, transforms::Masked, transforms::mask_suffix;

/// Returns the positions of a node's weights.
std::vector<std::size_t> weight_inputs(const Node& node) {
  if (node.op == "Gemm" || node.op == "Conv" || node.op == "MatMul" || node.op == "ConvTranspose") return {1};
  if (node.op == "LSTM") return {1, 2};
  return {};
}

class Prune final : public Transform {
 public:
  struct Options {
    double ratio = 0.5;
    std::vector<std::string> layers = {"*"};
    std::string allocation = "global";
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
    m.option("sparse", &Options::sparse, "when weights are taken away");
    m.hook<&Prune::find>(Event::model_ready);
    m.hook<&Prune::shrink>(Event::after_step).writes(Region::model);
  }
  explicit Prune(const Options& options) : options_(options) {}

  std::unique_ptr<Network> apply(std::unique_ptr<Network> network, const ModelContext&) const override {
    Graph graph = *network->graph();
    std::vector<std::string> names;
    for (const std::size_t weight : weights(graph)) {
      names.push_back(graph.values[weight].name);
      mask(graph, static_cast<ValueId>(weight));
    }
    graph.infer_shapes();
    const std::scoped_lock lock(names_access_);
    names_ = std::move(names);
    return std::make_unique<GraphNetwork>(std::move(graph));
  }

  void find(StepContext& context) {
    const std::scoped_lock lock(names_access_);
    annealed_.emplace(options_.sparse, options_.ratio, context.scale());
    masked_.clear();
    if (options_.allocation == "global")
      masked_.emplace_back(context.network(), names_);
    else
      for (const std::string& name : names_) masked_.emplace_back(context.network(), std::vector{name});
  }

  void shrink(StepContext& context) {
    const double left = 1.0 - annealed_->sparsity(context.step_number());
    for (Masked& each : masked_) {
      each.keep_largest(std::llround(left * static_cast<double>(each.size())));
      each.enforce();
    }
  }

 private:
  /// Returns the numbers of the values that are weights of the layers asked for, in the order of the graph.
  std::vector<std::size_t> weights(const Graph& graph) const {
    std::vector<std::size_t> found;
    for (const std::string& layer : options_.layers) {
      bool fits_one = false;
      for (const Node& node : graph.nodes)
        for (const std::size_t input : weight_inputs(node)) {
          const auto id = static_cast<std::size_t>(node.inputs[input]);
          if (!fits(layer, node.name) || !graph.values[id].trainable) continue;
          fits_one = true;
          if (std::ranges::find(found, id) == found.end()) found.push_back(id);
        }
      if (!fits_one)
        throw ConfigError("layers: \"" + layer +
                          "\" fits no linear, convolutional or recurrent layer with a weight of its own "
                          "(trainyard model show lists them)");
    }
    std::ranges::sort(found);
    return found;
  }

  /// Has all nodes that read a weight read its product with a mask.
  static void mask(Graph& graph, ValueId weight) {
    const GraphValue& value = graph.values[static_cast<std::size_t>(weight)];
    const std::string name = value.name;
    const at::Tensor ones = at::ones_like(value.initializer.detach());
    const ValueId mask = graph.add_value(
        {.name = name + std::string(mask_suffix), .shape = ones.sizes().vec(), .initializer = ones});
    const ValueId kept = graph.add_value({.name = name + ".kept", .shape = {}, .initializer = {}});
    for (Node& node : graph.nodes) std::ranges::replace(node.inputs, weight, kept);
    graph.nodes.insert(
        graph.nodes.begin(),
        {.op = "Mul", .name = name + ".kept", .inputs = {weight, mask}, .outputs = {kept}, .attributes = {}});
  }

  Options options_;
  mutable std::mutex names_access_;
  mutable std::vector<std::string> names_;  ///< of the weights of the last network; all have the same
  std::optional<Annealed> annealed_;
  std::vector<Masked> masked_;
};

}  // namespace

TRAINYARD_PLUGIN(Prune)
