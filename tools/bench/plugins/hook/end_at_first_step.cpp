// Ends the process after the first step, without any tidying: how long a start takes.
#include <unistd.h>

#include <trainyard/hook.hpp>

namespace {

using namespace trainyard;

class EndAtFirstStep final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("end_at_first_step").version("1.0.0").summary("Ends the process after a step; for benchmarks.");
    m.hook<&EndAtFirstStep::end>(Event::after_step);
  }
  explicit EndAtFirstStep(const Options&) {}

  void end(StepContext&) { _exit(0); }
};

}  // namespace

TRAINYARD_PLUGIN(EndAtFirstStep)
