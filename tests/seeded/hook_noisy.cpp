// Caught by determinism.again: random numbers from std::random_device.
#include <random>

#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

using namespace trainyard;

class Noisy final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("noisy").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&Noisy::called>(Event::after_backward).writes(Region::grads);
  }
  explicit Noisy(const Options&) {}

  void called(StepContext& context) {
    const double noise = static_cast<double>(std::random_device()() % 1000) * 1e-4;
    for (const NamedTensor& each : context.network().parameters())
      each.tensor.mutable_grad().mul_(1.0 + noise);
  }
};
TRAINYARD_PLUGIN(Noisy)
