// Caught by memory.steps: every step leaves memory behind.
#include <trainyard/hook.hpp>

using namespace trainyard;

class Leaky final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("leaky").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&Leaky::called>(Event::batch_end);
  }
  explicit Leaky(const Options&) {}

  void called(StepContext& context) { last_ = new double[20]{static_cast<double>(context.step_number())}; }

 private:
  double* last_ = nullptr;
};
TRAINYARD_PLUGIN(Leaky)
