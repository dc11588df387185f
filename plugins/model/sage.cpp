#include <trainyard/model.hpp>

#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>

#include "node_network.hpp"

namespace {

using namespace models;

/// y = W_l aggregate(neighbours) + b + W_r x.
class SageLayer final : public NodeLayer {
 public:
  SageLayer(NodeModel& model, const LayerPlan& plan, const std::string& aggregator)
      : NodeLayer("SAGEConv", plan.out),
        aggregate_(aggregator == "mean"  ? mean_neighbours
                   : aggregator == "max" ? max_neighbours
                                         : sum_neighbours),
        left_(model.linear(plan.name + ".lin_l", plan.out, plan.in)),
        right_(model.weight(plan.name + ".lin_r.weight", plan.out, plan.in,
                            1.0 / std::sqrt(static_cast<double>(plan.in)))) {}

  Tensor forward(const NodePass& pass, const Tensor& x, const EdgesPtr& edges) const override {
    const Tensor around = at::linear(aggregate_(x, edges), pass[left_.first], pass[left_.second]);
    return around.add(at::linear(x.narrow(0, 0, edges->targets()), pass[right_]));
  }

 private:
  Tensor (*aggregate_)(const Tensor&, const EdgesPtr&);
  std::pair<TensorId, TensorId> left_;
  TensorId right_;
};

/// GraphSAGE (Hamilton, Ying and Leskovec, "Inductive representation learning on large graphs", NeurIPS 2017,
/// algorithm 2 and section 3.3), with a matrix each for a node and its neighbours, whose products are added,
/// in place of one for both side by side, which is the same. Without the paper's normalisation to unit
/// length.
class Sage final : public Model {
 public:
  struct Options {
    std::int64_t layers = 2;
    std::int64_t hidden = 256;
    std::string aggregator = "mean";
    std::string read_out = "mean";
  };
  static void describe(Manifest<Options>& m) {
    m.name("sage").version("1.0.0").summary("GraphSAGE: nodes from themselves and their neighbours' mean.");
    m.option("layers", &Options::layers, "layers: as many as the data has hops").range(1, 64);
    m.option("hidden", &Options::hidden, "width between layers").range(1, 1 << 16);
    m.option("aggregator", &Options::aggregator, "what is taken of the neighbours")
        .one_of({"mean", "max", "sum"});
    describe_read_out(m);
  }
  explicit Sage(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    return node_network({context, options_.layers, {"Relu", at::relu}, read_out_of(options_.read_out)},
                        options_.layers, options_.hidden, [&](NodeModel& model, const LayerPlan& plan) {
                          return std::make_shared<SageLayer>(model, plan, options_.aggregator);
                        });
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Sage)
