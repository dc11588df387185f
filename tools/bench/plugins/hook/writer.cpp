// Declares that it writes gradients before every step, and does nothing: what watching such a hook costs.
#include <trainyard/hook.hpp>

namespace {

using namespace trainyard;

class Writer final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("writer").version("1.0.0").summary("An empty writer of gradients; for benchmarks.");
    m.hook<&Writer::called>(Event::before_step).writes(Region::grads);
  }
  explicit Writer(const Options&) {}

  void called(StepContext&) {}
};

}  // namespace

TRAINYARD_PLUGIN(Writer)
