// Writes the model before training: no plugin for a training that is going on.
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

namespace {

using namespace trainyard;

class Initialiser final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("initialiser").version("1.0.0").summary("Halves the weights before training.");
    m.hook<&Initialiser::model_ready>(Event::model_ready).writes(Region::model);
  }
  explicit Initialiser(const Options&) {}
  void model_ready(StepContext& context) {
    const at::NoGradGuard no_grad;
    for (const NamedTensor& each : context.network().parameters()) at::Tensor(each.tensor).mul_(0.5);
  }
};

}  // namespace

TRAINYARD_PLUGIN(Initialiser)
