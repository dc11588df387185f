// Kills one rank at a place that a file names: an event, or "construction". Once: it removes the file. For runs of
// several ranks.
#include <signal.h>

#include <cstdio>

#include <trainyard/hook.hpp>

#include "fault.hpp"
#include "place.hpp"

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
                                     Event::safe_point,   Event::swap_out,          Event::swap_in,
                                     Event::fit_end,      Event::shutdown};
  static void describe(Manifest<Options>& m) {
    m.name("rank_killer").version("1.0.0").summary("Kills one rank where it is told.");
    m.option("place", &Options::place, "file with the event and the step").required();
    m.option("rank", &Options::rank, "which one");
    for (const Event event : events) m.hook<&RankKiller::called>(event);
  }
  explicit RankKiller(const Options& options) : options_(options), place_(options.place) {
    if (place_.is("construction") && faulty::on_rank(options_.rank)) end();
  }

  void called(StepContext& context) {
    if (place_.reached(context) && faulty::on_rank(options_.rank)) end();
  }

 private:
  void end() const {
    std::remove(options_.place.c_str());
    raise(SIGKILL);
  }

  const Options options_;
  faulty::Place place_;
};

}  // namespace

TRAINYARD_PLUGIN(RankKiller)
