// Has steps repeated and skipped, and micro-batches left out: each at its own steps.
#include <trainyard/hook.hpp>

namespace {

using namespace trainyard;

class Restless final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("restless").version("1.0.0").summary("Has steps repeated, skipped, and micro-batches left out.");
    m.hook<&Restless::before_forward>(Event::before_forward).writes(Region::control);
    m.hook<&Restless::before_step>(Event::before_step).writes(Region::control);
  }
  explicit Restless(const Options&) {}

  void before_forward(StepContext& context) {
    if (context.micro() == 1 && context.step_number() % 4 == 0)
      context.request(Control::skip_micro, "the second of every fourth step");
  }
  void before_step(StepContext& context) {
    if (context.step_number() % 3 == 0 && context.repeats() < 2)
      context.request(Control::repeat_step, "every third step, twice");
    else if (context.step_number() % 7 == 0)
      context.request(Control::skip_step, "every seventh step");
  }
};

}  // namespace

TRAINYARD_PLUGIN(Restless)
