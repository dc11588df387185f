// Caught by faults.diverging: a loop walks down in steps that a large number does not notice.
#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

using namespace trainyard;

class SmallSteps final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("small_steps").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&SmallSteps::called>(Event::after_backward);
  }
  explicit SmallSteps(const Options&) {}

  void called(StepContext& context) {
    for (const NamedTensor& each : context.network().parameters())
      for (volatile double norm = each.tensor.grad().norm().item<double>(); norm > 1.0;) norm = norm - 0.5;
  }
};
TRAINYARD_PLUGIN(SmallSteps)
