// What the loss would change by without a filter, to first order and squared: (sum of g w over its weights) squared
// (Molchanov et al., "Importance estimation for neural network pruning", CVPR 2019, equation 8).
#include <ATen/ops/square.h>

#include <trainyard/scorer.hpp>

namespace {

using namespace trainyard;

class Taylor final : public Scorer {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("taylor").version("1.0.0").summary(
        "Scores filters by what the loss would change by without them.");
  }
  explicit Taylor(const Options&) {}

  Of of() const override { return Of::filters; }
  Reads reads() const override { return {.gradients = true}; }
  at::Tensor fold(const ScoredLayer&, const LayerPass& pass, const at::Tensor& before) const override {
    return before.defined() ? before + pass.gradient : pass.gradient;
  }
  at::Tensor scores(const ScoredLayer& layer, const at::Tensor& gradient,
                    const RandomStream&) const override {
    return (gradient * layer.weight).flatten(1).sum(1).square();
  }
};

}  // namespace

TRAINYARD_PLUGIN(Taylor)
