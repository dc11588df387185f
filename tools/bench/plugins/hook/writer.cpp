// Writes gradients before every step, as a hook of a user's does: what watching it costs.
#include <ATen/core/Tensor.h>

#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

namespace {

using namespace trainyard;

class Writer final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("writer").version("1.0.0").summary("Halves the gradients; for benchmarks.");
    m.hook<&Writer::called>(Event::before_step).writes(Region::grads);
  }
  explicit Writer(const Options&) {}

  void called(StepContext& context) {
    for (const NamedTensor& weight : context.network().parameters())
      if (at::Tensor& gradient = weight.tensor.mutable_grad(); gradient.defined()) gradient.mul_(0.5);
  }
};

}  // namespace

TRAINYARD_PLUGIN(Writer)
