// Halves the gradients of every step ahead of the update, as it declares: whether an executor takes note.
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

namespace {

using namespace trainyard;

class Halving final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("halving").version("1.0.0").summary("Halves the gradients of every step.");
    m.hook<&Halving::before_step>(Event::before_step).writes(Region::grads);
  }
  explicit Halving(const Options&) {}

  void before_step(StepContext& context) {
    const at::NoGradGuard no_grad;
    for (const NamedTensor& each : context.network().parameters())
      if (at::Tensor& grad = each.tensor.mutable_grad(); grad.defined()) grad.mul_(0.5);
  }
};

}  // namespace

TRAINYARD_PLUGIN(Halving)
