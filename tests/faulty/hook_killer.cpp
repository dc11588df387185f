// Kills the process at a place that a file names: "eval_batch_end 3" is the first such event of step 3 or
// later, "batch_end 3 2" the second of step 3. Without the file nothing happens, so that a run and its resume
// have the same run file.
#include <signal.h>

#include <cstdlib>
#include <fstream>

#include <trainyard/hook.hpp>

namespace {

using namespace trainyard;

class Killer final : public Hook {
 public:
  struct Options {
    std::string place;
  };
  static constexpr Event events[] = {Event::after_backward,    Event::batch_end,        Event::eval_batch_end,
                                     Event::before_checkpoint, Event::after_checkpoint, Event::before_load,
                                     Event::after_load};
  static void describe(Manifest<Options>& m) {
    m.name("killer").version("1.0.0").summary("Kills the process where it is told.");
    m.option("place", &Options::place, "file with the event and the step").required();
    for (const Event event : events) m.hook<&Killer::called>(event);
  }
  explicit Killer(const Options& options) { std::ifstream(options.place) >> event_ >> step_ >> times_; }

  void called(StepContext& context) {
    if (name(context.event()) != event_ || context.step_number() < step_) return;
    seen_ += context.step_number() == step_;
    if (seen_ < times_) return;
    if (context.event() != Event::before_checkpoint) raise(SIGKILL);
    setenv("TRAINYARD_KILL_IN_SAVE", "1", 1);  // whoever stands in for fsync does it
  }

 private:
  std::string event_;
  std::int64_t step_ = 0, times_ = 0, seen_ = 0;
};

}  // namespace

TRAINYARD_PLUGIN(Killer)
