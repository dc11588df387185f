// Caught by faults.batch: a batch is taken to have two samples.
#include <trainyard/hook.hpp>

using namespace trainyard;

class Pairs final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("pairs").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&Pairs::called>(Event::after_forward);
  }
  explicit Pairs(const Options&) {}

  void called(StepContext& context) { sum_ += context.output()[1].sum().item<double>(); }

 private:
  double sum_ = 0.0;
};
TRAINYARD_PLUGIN(Pairs)
