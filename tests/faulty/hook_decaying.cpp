// Doubles the weight decay at the start of every epoch, as it declares: whether an executor takes note.
#include <trainyard/hook.hpp>
#include <trainyard/optimizer.hpp>

namespace {

using namespace trainyard;

class Decaying final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("decaying").version("1.0.0").summary("Doubles the weight decay at the start of every epoch.");
    m.hook<&Decaying::epoch_start>(Event::epoch_start).writes(Region::hyper);
  }
  explicit Decaying(const Options&) {}

  void epoch_start(StepContext& context) {
    for (ParamGroup& group : context.optimizer().groups()) group.weight_decay *= 2.0;
  }
};

}  // namespace

TRAINYARD_PLUGIN(Decaying)
