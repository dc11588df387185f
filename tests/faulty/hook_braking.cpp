// Halves the learning rate of every step ahead of the update, as it declares: whether an executor takes note.
#include <trainyard/hook.hpp>
#include <trainyard/optimizer.hpp>

namespace {

using namespace trainyard;

class Braking final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("braking").version("1.0.0").summary("Halves the learning rate of every step.");
    m.hook<&Braking::before_step>(Event::before_step).writes(Region::hyper);
  }
  explicit Braking(const Options&) {}

  void before_step(StepContext& context) {
    for (ParamGroup& group : context.optimizer().groups()) group.lr *= 0.5;  // the host sets it at every step
  }
};

}  // namespace

TRAINYARD_PLUGIN(Braking)
