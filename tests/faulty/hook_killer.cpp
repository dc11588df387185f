// Kills the process at a place that a file names.
#include <signal.h>

#include <cstdlib>

#include <trainyard/hook.hpp>

#include "place.hpp"

namespace {

using namespace trainyard;

class Killer final : public Hook {
 public:
  struct Options {
    std::string place;
  };
  static constexpr Event events[] = {Event::before_step,       Event::batch_end,        Event::eval_batch_end,
                                     Event::before_checkpoint, Event::after_checkpoint, Event::before_load,
                                     Event::after_load};
  static void describe(Manifest<Options>& m) {
    m.name("killer").version("1.0.0").summary("Kills the process where it is told.");
    m.option("place", &Options::place, "file with the event and the step").required();
    for (const Event event : events) m.hook<&Killer::called>(event);
  }
  explicit Killer(const Options& options) : place_(options.place) {}

  void called(StepContext& context) {
    if (!place_.reached(context)) return;
    if (context.event() != Event::before_checkpoint) raise(SIGKILL);
    setenv("TRAINYARD_KILL_IN_SAVE", "1", 1);  // whoever stands in for fsync does it
  }

 private:
  faulty::Place place_;
};

}  // namespace

TRAINYARD_PLUGIN(Killer)
