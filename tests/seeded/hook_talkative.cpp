// Caught by run.quiet: messages go to standard output.
#include <cstdio>

#include <trainyard/hook.hpp>

using namespace trainyard;

class Talkative final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("talkative").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&Talkative::called>(Event::batch_end);
  }
  explicit Talkative(const Options&) {}

  void called(StepContext& context) { std::printf("step %ld\n", static_cast<long>(context.step_number())); }
};
TRAINYARD_PLUGIN(Talkative)
