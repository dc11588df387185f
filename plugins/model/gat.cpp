#include <trainyard/model.hpp>

#include <ATen/ops/elu.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/linear.h>

#include "node_network.hpp"

namespace {

using namespace models;

/// For each head, with z = W x: y_v = sum of a_uv z_u over v's neighbours and v, where a_uv is the softmax
/// over them of LeakyReLU(s . z_u + t . z_v) (equations 3 and 4).
class GatLayer final : public NodeLayer {
 public:
  GatLayer(NodeModel& model, const LayerPlan& plan, std::int64_t heads, double slope)
      : NodeLayer("GATConv", plan.last ? plan.out : heads * plan.out),
        heads_(heads),
        out_(plan.out),
        slope_(slope),
        mean_(plan.last),
        weight_(model.weight(plan.name + ".lin.weight", heads * plan.out, plan.in,
                             glorot(plan.in, heads * plan.out))),
        source_(model.uniform(plan.name + ".att_src", {1, heads, plan.out}, glorot(heads, plan.out))),
        target_(model.uniform(plan.name + ".att_dst", {1, heads, plan.out}, glorot(heads, plan.out))),
        bias_(model.parameter(plan.name + ".bias", at::zeros({width()}))),
        site_(model.site(plan.name + ".attn_weights", heads, true)) {}

  Tensor forward(const NodePass& pass, const Tensor& x, const EdgesPtr& given) const override {
    const EdgesPtr edges = given->with_self_loops();
    const Tensor z = at::linear(x, pass[weight_]).view({x.size(0), heads_, out_});
    const Tensor at_source = z.mul(pass[source_]).sum(-1);
    const Tensor at_target = z.narrow(0, 0, edges->targets()).mul(pass[target_]).sum(-1);
    const Tensor scores = at::leaky_relu(add_ends(at_source, at_target, edges), slope_);
    const Tensor y = weighted_sum(pass.dropped(edge_softmax(scores, edges), site_), z, edges);
    return (mean_ ? y.mean(1) : y.flatten(1)).add(pass[bias_]);
  }

 private:
  std::int64_t heads_, out_;
  double slope_;
  bool mean_;
  TensorId weight_, source_, target_, bias_;
  std::size_t site_;
};

/// Graph attention networks (Velickovic et al., ICLR 2018, section 2.1): the heads of hidden layers side by
/// side, those of the last averaged (equations 5 and 6), ELU between. The paper's dropout, on the input of each
/// layer and on the attention, is sites = ["input.dropout", "*.dropout", "*.attn_weights"].
class Gat final : public Model {
 public:
  struct Options {
    std::int64_t layers = 2;
    std::int64_t hidden = 8;
    std::int64_t heads = 8;
    std::int64_t output_heads = 1;
    double negative_slope = 0.2;
    std::string read_out = "mean";
  };
  static void describe(Manifest<Options>& m) {
    m.name("gat").version("1.0.0").summary("Graph attention: neighbours weighted by a softmax over scores.");
    m.option("layers", &Options::layers, "layers: as many as the data has hops").range(1, 64);
    m.option("hidden", &Options::hidden, "width of a head between layers").range(1, 1 << 16);
    m.option("heads", &Options::heads, "heads of each layer but the last, side by side").range(1, 1 << 10);
    m.option("output_heads", &Options::output_heads, "heads of the last layer, averaged").range(1, 1 << 10);
    m.option("negative_slope", &Options::negative_slope, "of the scores below 0 (LeakyReLU)").range(0.0, 1.0);
    describe_read_out(m);
  }
  explicit Gat(const Options& options) : options_(options) {}

  std::unique_ptr<Network> build(const ModelContext& context) const override {
    const NodeActivation elu = {"Elu", [](const Tensor& x) { return at::elu(x); }};
    return node_network({context, options_.layers, elu, read_out_of(options_.read_out)}, options_.layers,
                        options_.hidden, [&](NodeModel& model, const LayerPlan& plan) {
                          const std::int64_t heads = plan.last ? options_.output_heads : options_.heads;
                          return std::make_shared<GatLayer>(model, plan, heads, options_.negative_slope);
                        });
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Gat)
