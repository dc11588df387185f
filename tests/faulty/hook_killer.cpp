// Kills the process at a place that a file names: "eval_batch_end 3" is the first such event of step 3 or
// later, "batch_end 3 2" the second of step 3. Without the file nothing happens, so that a run and its resume
// have the same run file. `rank`: that one alone, once; who kills it removes the file.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <trainyard/hook.hpp>

namespace {

using namespace trainyard;

class Killer final : public Hook {
 public:
  struct Options {
    std::string place;
    std::int64_t rank = -1;
  };
  static constexpr Event events[] = {Event::before_fetch, Event::after_backward,    Event::before_reduce,
                                     Event::after_reduce, Event::before_step,       Event::after_step,
                                     Event::batch_end,    Event::eval_start,        Event::eval_batch_end,
                                     Event::eval_end,     Event::before_checkpoint, Event::after_checkpoint,
                                     Event::safe_point,   Event::before_load,       Event::after_load};
  static void describe(Manifest<Options>& m) {
    m.name("killer").version("1.0.0").summary("Kills the process where it is told.");
    m.option("place", &Options::place, "file with the event and the step").required();
    m.option("rank", &Options::rank, "which one; -1: all of them");
    for (const Event event : events) m.hook<&Killer::called>(event);
  }
  explicit Killer(const Options& options) : options_(options) {
    std::ifstream(options.place) >> event_ >> step_ >> times_;
  }

  void called(StepContext& context) {
    if (name(context.event()) != event_ || context.step_number() < step_) return;
    seen_ += context.step_number() == step_;
    if (seen_ < times_) return;
    if (options_.rank >= 0) {
      const char* const rank = std::getenv("RANK");
      if (rank == nullptr || std::atoi(rank) != options_.rank) return;
      std::remove(options_.place.c_str());
      raise(SIGKILL);
    }
    if (context.event() != Event::before_checkpoint) raise(SIGKILL);
    setenv("TRAINYARD_KILL_IN_SAVE", "1", 1);  // whoever stands in for fsync does it
  }

 private:
  Options options_;
  std::string event_;
  std::int64_t step_ = 0, times_ = 0, seen_ = 0;
};

}  // namespace

TRAINYARD_PLUGIN(Killer)
