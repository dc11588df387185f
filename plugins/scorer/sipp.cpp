// SiPP (Baykal et al., "SiPPing neural networks: sensitivity-informed provable pruning of neural networks", 2019), the
// deterministic variant: the relative importance of a weight, its mean over positions, the largest over samples, of which
// the positive and the negative part of the inputs are one each.
#include <ATen/ops/amax.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include "sensitivity.hpp"

namespace {

using namespace trainyard;

class SiPP final : public Scorer {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("sipp").version("1.0.0").summary(
        "Scores weights by their share in the sums that they are terms of.");
  }
  explicit SiPP(const Options&) {}

  Of of() const override { return Of::weights; }
  Reads reads() const override { return {.inputs = true}; }

  at::Tensor fold(const ScoredLayer& layer, const LayerPass& pass, const at::Tensor& before) const override {
    const std::int64_t groups = layer.groups, terms = layer.weight.size(1) * layer.weight.size(2);
    const std::int64_t outputs = layer.weight.size(0) / groups;
    at::Tensor shares =
        at::zeros({2, pass.inputs.size(0), groups, outputs, terms}, pass.inputs.options().dtype(at::kDouble));
    // A weight is of one sign, so that one of the two pairs has it; the copies of the inputs count as samples.
    scorers::for_sign_pairs(layer, pass, [&](const scorers::SignPair& pair) {
      shares[pair.negative_inputs ? 1 : 0] +=
          pair.weight * at::matmul(pair.inverse, pair.inputs.transpose(2, 3));
    });
    const at::Tensor largest =
        (shares.amax({0, 1}) / static_cast<double>(pass.inputs.size(3))).reshape(layer.weight.sizes());
    return before.defined() ? at::maximum(before, largest) : largest;
  }
  at::Tensor scores(const ScoredLayer&, const at::Tensor& folded, const RandomStream&) const override {
    return folded;
  }
};

}  // namespace

TRAINYARD_PLUGIN(SiPP)
