// Kills the process at a place that a file names; where there are several ranks, all of them or one.
#include <signal.h>
#include <unistd.h>

#include <trainyard/hook.hpp>

#include "fault.hpp"
#include "place.hpp"

namespace {

using namespace trainyard;

class Killer final : public Hook {
 public:
  struct Options {
    std::string place;
    std::int64_t rank = -1;
  };
  static constexpr Event events[] = {Event::before_step,       Event::batch_end,        Event::eval_batch_end,
                                     Event::before_checkpoint, Event::after_checkpoint, Event::before_load,
                                     Event::after_load};
  static void describe(Manifest<Options>& m) {
    m.name("killer").version("1.0.0").summary("Kills the process where it is told.");
    m.option("place", &Options::place, "file with the event and the step").required();
    m.option("rank", &Options::rank, "which alone is killed; -1: all");
    for (const Event event : events) m.hook<&Killer::called>(event);
  }
  explicit Killer(const Options& options) : options_(options), place_(options.place) {}

  void called(StepContext& context) {
    if (!place_.reached(context) || !faulty::on_rank(options_.rank)) return;
    if (context.event() != Event::before_checkpoint) raise(SIGKILL);
    fsync(faulty::die_in_save);  // whoever stands in for it takes it so
  }

 private:
  const Options options_;
  faulty::Place place_;
};

}  // namespace

TRAINYARD_PLUGIN(Killer)
