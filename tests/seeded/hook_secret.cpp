// Caught by events.writes: gradients are written, which the hook does not declare.
#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

using namespace trainyard;

class Secret final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("secret").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&Secret::called>(Event::after_backward);
  }
  explicit Secret(const Options&) {}

  void called(StepContext& context) {
    for (const NamedTensor& each : context.network().parameters()) each.tensor.mutable_grad().mul_(0.5);
  }
};
TRAINYARD_PLUGIN(Secret)
