#include <ATen/ops/square.h>

#include <trainyard/scorer.hpp>

using namespace trainyard;

/// The squares of the weights.
class MyPlugin final : public Scorer {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("Scores weights by their squares.");
  }
  explicit MyPlugin(const Options&) {}
  Of of() const override { return Of::weights; }
  at::Tensor scores(const ScoredLayer& layer, const at::Tensor&, const RandomStream&) const override {
    return layer.weight.square();
  }
};
TRAINYARD_PLUGIN(MyPlugin)
