// Kills one rank at a place that a file names: "eval_batch_end 3" is the first such event of step 3 or later,
// "batch_end 3 2" the second of step 3. Once: it removes the file. For runs of several ranks.
#include <signal.h>

#include <cstdio>
#include <fstream>

#include <trainyard/hook.hpp>

#include "fault.hpp"

namespace {

using namespace trainyard;

class RankKiller final : public Hook {
 public:
  struct Options {
    std::string place;
    std::int64_t rank = 0;
  };
  static constexpr Event events[] = {Event::before_fetch, Event::after_backward,    Event::before_reduce,
                                     Event::after_reduce, Event::before_step,       Event::after_step,
                                     Event::batch_end,    Event::eval_start,        Event::eval_batch_end,
                                     Event::eval_end,     Event::before_checkpoint, Event::after_checkpoint,
                                     Event::safe_point};
  static void describe(Manifest<Options>& m) {
    m.name("rank_killer").version("1.0.0").summary("Kills one rank where it is told.");
    m.option("place", &Options::place, "file with the event and the step").required();
    m.option("rank", &Options::rank, "which one");
    for (const Event event : events) m.hook<&RankKiller::called>(event);
  }
  explicit RankKiller(const Options& options) : options_(options) {
    std::ifstream(options.place) >> event_ >> step_ >> times_;
  }

  void called(StepContext& context) {
    if (name(context.event()) != event_ || context.step_number() < step_) return;
    seen_ += context.step_number() == step_;
    if (seen_ < times_ || !faulty::on_rank(options_.rank)) return;
    std::remove(options_.place.c_str());
    raise(SIGKILL);
  }

 private:
  const Options options_;
  std::string event_;
  std::int64_t step_ = 0, times_ = 0, seen_ = 0;
};

}  // namespace

TRAINYARD_PLUGIN(RankKiller)
