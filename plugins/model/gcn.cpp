#include <trainyard/model.hpp>

#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>

#include "node_network.hpp"

namespace {

using namespace models;

/// y_v = W sum over u of v's neighbours and v of x_u / sqrt((d_u + 1) (d_v + 1)) + b, with degrees d of the
/// whole graph. Of k sampled neighbours of d the sum is taken d / k times, so that its mean is that of all
/// (Chen, Zhu and Song, "Stochastic training of graph convolutional networks with variance reduction", ICML
/// 2018, section 2).
class GcnLayer final : public NodeLayer {
 public:
  GcnLayer(NodeModel& model, const LayerPlan& plan)
      : NodeLayer("GCNConv", plan.out),
        narrows_(plan.out < plan.in),
        weight_(model.weight(plan.name + ".lin.weight", plan.out, plan.in, glorot(plan.in, plan.out))),
        bias_(model.parameter(plan.name + ".bias", at::zeros({plan.out}))) {}

  /// The matrix goes to the side where rows are fewer numbers.
  Tensor forward(const NodePass& pass, const Tensor& x, const EdgesPtr& edges) const override {
    if (narrows_) return propagate(pass, at::linear(x, pass[weight_]), edges).add(pass[bias_]);
    return at::linear(propagate(pass, x, edges), pass[weight_], pass[bias_]);
  }

 private:
  static Tensor propagate(const NodePass& pass, const Tensor& given, const EdgesPtr& edges) {
    const Tensor x = segments::wide(given, edges->sources());
    const Tensor degree = pass.degrees(edges->sources(), x), scale = degree.add(1).rsqrt();
    const Tensor own = degree.narrow(0, 0, edges->targets()), scaled = x.mul(scale);
    const Tensor share = own.div(edges->degrees().clamp_min(1).unsqueeze(1));
    const Tensor sum = sum_neighbours(scaled, edges).mul(share).add(scaled.narrow(0, 0, edges->targets()));
    return sum.mul(scale.narrow(0, 0, edges->targets()));
  }

  bool narrows_;
  TensorId weight_, bias_;
};

/// GCN (Kipf and Welling, "Semi-supervised classification with graph convolutional networks", ICLR 2017,
/// equation 2).
class Gcn final : public Model {
 public:
  struct Options {
    std::int64_t layers = 2;
    std::int64_t hidden = 16;
    std::string read_out = "mean";
  };
  static void describe(Manifest<Options>& m) {
    m.name("gcn").version("1.0.0").summary("Graph convolutions: sums over neighbours, scaled by degrees.");
    m.option("layers", &Options::layers, "layers: as many as the data has hops").range(1, 64);
    m.option("hidden", &Options::hidden, "width between layers").range(1, 1 << 16);
    describe_read_out(m);
  }
  explicit Gcn(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    NodeModel model(context, options_.layers, {"Relu", at::relu}, read_out_of(options_.read_out));
    if (!model.blocks.degree)
      throw ConfigError(
          "the model scales by the degrees that nodes have in the whole graph, and the data gives none "
          "(no input \"degree\"): set data.degree = true, or take model.type = \"sage\"");
    return node_network(
        std::move(model), options_.layers, options_.hidden,
        [](NodeModel& model, const LayerPlan& plan) { return std::make_shared<GcnLayer>(model, plan); });
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Gcn)
