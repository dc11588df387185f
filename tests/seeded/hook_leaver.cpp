// Caught by run.trains: what it does not like ends the process.
#include <cstdlib>

#include <trainyard/hook.hpp>

using namespace trainyard;

class Leaver final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("leaver").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&Leaver::called>(Event::batch_end);
  }
  explicit Leaver(const Options&) {}

  void called(StepContext& context) {
    if (context.step_number() == 2) std::exit(0);
  }
};
TRAINYARD_PLUGIN(Leaver)
