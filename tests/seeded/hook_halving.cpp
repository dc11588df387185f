// Caught by faults.diverging: a loop ends for finite gradients only.
#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

using namespace trainyard;

class Halving final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("halving").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&Halving::called>(Event::after_backward).writes(Region::grads);
  }
  explicit Halving(const Options&) {}

  void called(StepContext& context) {
    for (const NamedTensor& each : context.network().parameters())
      while (!(each.tensor.grad().norm().item<double>() < 1e6)) each.tensor.mutable_grad().mul_(0.5);
  }
};
TRAINYARD_PLUGIN(Halving)
