// Caught by run.trains: a loop never ends.
#include <trainyard/hook.hpp>

using namespace trainyard;

class Endless final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("endless").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&Endless::called>(Event::batch_end);
  }
  explicit Endless(const Options&) {}

  void called(StepContext& context) {
    for (volatile std::int64_t i = 0; i != context.step_number() - 3;) i = i + 2;
  }
};
TRAINYARD_PLUGIN(Endless)
