// Magnitudes of weights (Han et al., "Learning both weights and connections for efficient neural networks", 2015).
#include <ATen/ops/abs.h>

#include <trainyard/scorer.hpp>

namespace {

using namespace trainyard;

class Magnitude final : public Scorer {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("magnitude").version("1.0.0").summary("Scores weights by their magnitude.");
  }
  explicit Magnitude(const Options&) {}

  Of of() const override { return Of::weights; }
  at::Tensor scores(const ScoredLayer& layer, const at::Tensor&, const RandomStream&) const override {
    return layer.weight.abs();
  }
};

}  // namespace

TRAINYARD_PLUGIN(Magnitude)
