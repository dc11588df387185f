// DropConnect (Wan et al., "Regularization of neural networks using DropConnect", ICML 2013, section 3):
// weights are dropped, one mask a pass, in place of activations; scaled by 1 / (1 - p), so that evaluations
// take the mean weights. inference = "gaussian" is the paper's (algorithm 2): a unit's input u = sum_j w_j
// m_j x_j / (1 - p) + b is, over the masks, nearly normal, with
//   mean w x + b, as E m = 1 - p, and variance p / (1 - p) (w . w)(x . x), as Var m = p (1 - p)
// (the paper, which does not scale, has (1 - p) w x and p (1 - p) (w . w)(x . x)); what follows the layer is
// averaged over draws of u. On the recurrent weights of an LSTM, sites = ["*.weight_hh"], it is the
// weight-drop of AWD-LSTM (Merity et al., "Regularizing and optimizing LSTM language models", ICLR 2018,
// section 2).
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/square.h>

#include <trainyard/dropout.hpp>

#include <trainyard/helpers/dropout_masks.hpp>

namespace {

using namespace trainyard;

class DropConnect final : public Dropout, public MasksWeights, public EvaluatesLinears {
 public:
  struct Options {
    std::string inference = "mean";
    std::int64_t samples = 16;
  };
  static void describe(Manifest<Options>& m) {
    m.name("dropconnect").version("1.0.0").summary("Weights are dropped, in place of activations.");
    m.option(
         "inference", &Options::inference,
         "mean: evaluations take the mean weights; gaussian: activations of linear layers are averaged over "
         "draws of their inputs, with the mean and the variance that these have over the masks")
        .one_of({"mean", "gaussian"});
    m.option("samples", &Options::samples, "draws of inference = \"gaussian\"").range(1, 10000);
  }
  explicit DropConnect(const Options& options) : options_(options) {}

  void open(const DropoutPlaces& places) override {
    if (evaluates_linears() == nullptr) return;
    for (const DropoutWeight& weight : places.weights)
      if (weight.active && !weight.linear)
        throw ConfigError("model.dropout.inference = \"gaussian\" is for linear layers, and \"" + weight.id +
                          "\" is no weight of one; name weights of linear layers in model.dropout.sites, or "
                          "take inference = \"mean\"");
  }
  MasksWeights* masks_weights() override { return this; }

  at::Tensor mask_weight(const at::Tensor& weight, std::size_t, const DropoutCall& call) override {
    return at::mul(weight, masks_.inverted(weight.sizes(), 1.0 - call.p, weight, call.random));
  }

  EvaluatesLinears* evaluates_linears() override { return options_.inference == "gaussian" ? this : nullptr; }
  at::Tensor evaluate_linear(const at::Tensor& x, const at::Tensor& weight,
                             const std::optional<at::Tensor>& bias, const Activation& activation, std::size_t,
                             const DropoutCall& call) override {
    const at::Tensor mean = at::linear(x, weight, bias);
    if (!activation) return mean;  // that of the draws
    const at::Tensor squares = at::linear(at::square(x), at::square(weight));
    const at::Tensor deviation = at::sqrt(at::mul(squares, call.p / (1.0 - call.p)));
    at::Tensor sum;
    for (std::int64_t sample = 0; sample < options_.samples; ++sample) {
      const at::Tensor noise =
          masks_.normal(mean.sizes(), mean, call.random, static_cast<std::uint64_t>(sample));
      const at::Tensor active = activation(at::addcmul(mean, deviation, noise.to(mean.scalar_type())));
      sum = sample == 0 ? active.to(noise.scalar_type()) : at::add(sum, active);
    }
    return at::mul(sum, 1.0 / static_cast<double>(options_.samples)).to(mean.scalar_type());
  }

 private:
  Options options_;
  DropoutMasks masks_;
};

}  // namespace

TRAINYARD_PLUGIN(DropConnect)
