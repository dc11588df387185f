// Caught by resume.bits: what changes is static, of which no checkpoint knows.
#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

using namespace trainyard;

class Global final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("global").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&Global::called>(Event::after_backward).writes(Region::grads);
  }
  explicit Global(const Options&) {}

  void called(StepContext& context) {
    static int count = 0;
    for (const NamedTensor& each : context.network().parameters())
      each.tensor.mutable_grad().mul_(1.0 / static_cast<double>(++count));
  }
};
TRAINYARD_PLUGIN(Global)
