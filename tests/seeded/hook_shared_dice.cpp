// Caught by determinism.process: random numbers come from LibTorch's own generator, which every run goes on with.
#include <ATen/ops/rand.h>

#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

using namespace trainyard;

class SharedDice final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("shared_dice").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&SharedDice::called>(Event::after_backward).writes(Region::grads);
  }
  explicit SharedDice(const Options&) {}

  void called(StepContext& context) {
    for (const NamedTensor& each : context.network().parameters())
      each.tensor.mutable_grad().add_(at::rand(each.tensor.sizes()));
  }
};
TRAINYARD_PLUGIN(SharedDice)
