// Asks for every so many steps to be skipped, or for their batches to be left out, by all ranks or by one; is at no
// event of micro-batches: for executors that fire none.
#include <trainyard/hook.hpp>

#include "fault.hpp"

namespace {

using namespace trainyard;

class Skipping final : public Hook {
 public:
  struct Options {
    std::int64_t first = 3, period = 4, rank = -1;
    bool batches = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("skipping").version("1.0.0").summary("Skips steps.");
    m.option("first", &Options::first, "number of the first step that is skipped");
    m.option("period", &Options::period, "steps to the next one").min(1);
    m.option("rank", &Options::rank, "which one asks; -1: all");
    m.option("batches", &Options::batches, "leaves the batch out");
    m.hook<&Skipping::called>(Event::before_step).writes(Region::control);
    m.hook<&Skipping::called>(Event::batch_start).writes(Region::control);
  }
  explicit Skipping(const Options& options) : options_(options) {}

  void called(StepContext& context) {
    const bool here = (context.event() == Event::batch_start) == options_.batches;
    const std::int64_t since = context.step_number() - options_.first;
    if (here && faulty::on_rank(options_.rank) && since >= 0 && since % options_.period == 0)
      context.request(options_.batches ? Control::skip_batch : Control::skip_step, "as it was told");
  }

 private:
  const Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Skipping)
