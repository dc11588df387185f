// PFP (Liebenwein et al., "Provable filter pruning for efficient neural networks", ICLR 2020): the sensitivity of an input
// channel, which is the largest relative importance of its weights over outputs, taps, positions and samples.
#include <ATen/ops/amax.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include "sensitivity.hpp"

namespace {

using namespace trainyard;

class Pfp final : public Scorer {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("pfp").version("1.0.0").summary(
        "Scores input channels by the largest share that they have in an output.");
  }
  explicit Pfp(const Options&) {}

  Of of() const override { return Of::channels; }
  Reads reads() const override { return {.inputs = true}; }

  at::Tensor fold(const ScoredLayer& layer, const LayerPass& pass, const at::Tensor& before) const override {
    const std::int64_t groups = layer.groups, terms = layer.weight.size(1) * layer.weight.size(2);
    at::Tensor largest =
        before.defined() ? before : at::zeros({groups, terms}, pass.inputs.options().dtype(at::kDouble));
    scorers::for_sign_pairs(layer, pass, [&](const scorers::SignPair& pair) {
      for (std::int64_t output = 0; output < pair.weight.size(1); ++output) {
        const at::Tensor shares = (pair.inputs * pair.inverse.select(2, output).unsqueeze(2)).amax({0, 3});
        largest = at::maximum(largest, shares * pair.weight.select(1, output));
      }
    });
    return largest;
  }
  at::Tensor scores(const ScoredLayer& layer, const at::Tensor& folded, const RandomStream&) const override {
    return folded.reshape({layer.groups * layer.weight.size(1), layer.weight.size(2)}).amax(1);
  }
};

}  // namespace

TRAINYARD_PLUGIN(Pfp)
