// Caught by resume.bits: the counter that later steps depend on is not saved.
#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

using namespace trainyard;

class ForgetfulHook final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("forgetful").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&ForgetfulHook::called>(Event::after_backward).writes(Region::grads);
  }
  explicit ForgetfulHook(const Options&) {}

  void called(StepContext& context) {
    ++count_;
    for (const NamedTensor& each : context.network().parameters())
      each.tensor.mutable_grad().mul_(1.0 / static_cast<double>(count_));
  }

 private:
  int count_ = 0;
};
TRAINYARD_PLUGIN(ForgetfulHook)
