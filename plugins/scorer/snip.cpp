// What the loss would change by without a weight, to first order: |g w| (Lee et al., "SNIP: single-shot network pruning
// based on connection sensitivity", ICLR 2019, equation 6, without the division by the sum, which orders nothing).
#include <ATen/ops/abs.h>

#include <trainyard/scorer.hpp>

namespace {

using namespace trainyard;

class Snip final : public Scorer {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("snip").version("1.0.0").summary("Scores weights by weight times gradient.");
  }
  explicit Snip(const Options&) {}

  Of of() const override { return Of::weights; }
  Reads reads() const override { return {.gradients = true}; }
  at::Tensor fold(const ScoredLayer&, const LayerPass& pass, const at::Tensor& before) const override {
    return before.defined() ? before + pass.gradient : pass.gradient;
  }
  at::Tensor scores(const ScoredLayer& layer, const at::Tensor& gradient,
                    const RandomStream&) const override {
    return (gradient * layer.weight).abs();
  }
};

}  // namespace

TRAINYARD_PLUGIN(Snip)
