#include <optional>

#include <trainyard/model.hpp>

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>

#include "node_network.hpp"

namespace {

using namespace models;

/// Over the nodes of a pass (Ioffe and Szegedy, ICML 2015), as torch.nn.BatchNorm1d.
class NodeNorm {
 public:
  NodeNorm(NodeModel& model, const std::string& name, std::int64_t width)
      : weight_(model.parameter(name + ".weight", at::ones({width}))),
        bias_(model.parameter(name + ".bias", at::zeros({width}))),
        mean_(model.buffer(name + ".running_mean", at::zeros({width}))),
        variance_(model.buffer(name + ".running_var", at::ones({width}))) {}

  Tensor operator()(const NodePass& pass, const Tensor& x) const {
    const bool training = pass.context().training;
    if (training && x.size(0) < 2)
      throw DataError(
          "a batch has " + std::to_string(x.size(0)) +
          " nodes in a layer, and batch normalisation takes the variance of two or more: set "
          "data.train.drop_last = true, another data.train.batch_size, or model.batch_norm = false");
    return at::batch_norm(x, pass[weight_], pass[bias_], pass[mean_], pass[variance_], training, 0.1, 1e-5,
                          false);
  }

 private:
  TensorId weight_, bias_, mean_, variance_;
};

/// y_v = MLP((1 + eps) x_v + sum of its neighbours) (equation 4.1), the MLP of two layers; batch
/// normalisation after the first and, but of the last layer of the stack, after the second.
class GinLayer final : public NodeLayer {
 public:
  GinLayer(NodeModel& model, const LayerPlan& plan, std::size_t number, std::int64_t hidden, bool train_eps,
           bool batch_norm)
      : NodeLayer("GINConv", plan.out),
        eps_(train_eps ? model.parameter(plan.name + ".eps", at::zeros({1}))
                       : model.buffer(plan.name + ".eps", at::zeros({1}))),
        first_(model.linear(plan.name + ".nn.lins.0", hidden, plan.in)),
        second_(model.linear(plan.name + ".nn.lins.1", plan.out, hidden)) {
    if (!batch_norm) return;
    inner_.emplace(model, plan.name + ".nn.norms.0.module", hidden);
    if (!plan.last) outer_.emplace(model, "norms." + std::to_string(number) + ".module", plan.out);
  }

  Tensor forward(const NodePass& pass, const Tensor& x, const EdgesPtr& edges) const override {
    const Tensor own = x.narrow(0, 0, edges->targets()).mul(pass[eps_].add(1));
    Tensor y = at::linear(sum_neighbours(x, edges).add(own), pass[first_.first], pass[first_.second]);
    y = at::relu(inner_ ? (*inner_)(pass, y) : y);
    y = at::linear(y, pass[second_.first], pass[second_.second]);
    return outer_ ? (*outer_)(pass, y) : y;
  }

 private:
  TensorId eps_;
  std::pair<TensorId, TensorId> first_, second_;
  std::optional<NodeNorm> inner_, outer_;
};

/// Graph isomorphism networks (Xu et al., "How powerful are graph neural networks?", ICLR 2019), on nodes.
class Gin final : public Model {
 public:
  struct Options {
    std::int64_t layers = 2;
    std::int64_t hidden = 64;
    bool train_eps = false;
    bool batch_norm = true;
    std::string read_out = "sum";
  };
  static void describe(Manifest<Options>& m) {
    m.name("gin").version("1.0.0").summary("Graph isomorphism network: an MLP of the sum over neighbours.");
    m.option("layers", &Options::layers, "layers: as many as the data has hops").range(1, 64);
    m.option("hidden", &Options::hidden, "width between layers, and within their MLPs").range(1, 1 << 16);
    m.option("train_eps", &Options::train_eps,
             "the weight of a node itself, 1 + eps, is learned; else it is 1");
    m.option("batch_norm", &Options::batch_norm, "in each MLP and between layers");
    describe_read_out(m);
  }
  explicit Gin(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    return node_network({context, options_.layers, {"Relu", at::relu}, read_out_of(options_.read_out)},
                        options_.layers, options_.hidden, [&](NodeModel& model, const LayerPlan& plan) {
                          return std::make_shared<GinLayer>(model, plan, model.layers.size(), options_.hidden,
                                                            options_.train_eps, options_.batch_norm);
                        });
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Gin)
