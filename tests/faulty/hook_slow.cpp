// Takes its time at an event of a step.
#include <trainyard/hook.hpp>

#include "slow.hpp"

namespace {

using namespace trainyard;

class SlowHook final : public Hook {
 public:
  struct Options {
    std::string at = "batch_end";
    std::int64_t step = 1;
    double seconds = 0.3;
    std::string sign = "slow";
  };
  static constexpr Event events[] = {
      Event::fit_start,      Event::before_fetch, Event::after_fetch,       Event::micro_end,
      Event::after_backward, Event::batch_end,    Event::eval_start,        Event::eval_batch_start,
      Event::eval_end,       Event::safe_point,   Event::before_checkpoint, Event::after_checkpoint,
      Event::epoch_end,      Event::fit_end};
  static void describe(Manifest<Options>& m) {
    m.name("slow").version("1.0.0").summary("Sleeps once, where it is told.");
    std::vector<std::string> names;
    for (const Event event : events) {
      names.emplace_back(name(event));
      m.hook<&SlowHook::called>(event);
    }
    m.option("at", &Options::at, "event").one_of(names);
    m.option("step", &Options::step, "number of the step");
    m.option("seconds", &Options::seconds, "how long").min(0.0);
    m.option("sign", &Options::sign, "file that tells that it sleeps");
  }
  explicit SlowHook(const Options& options) : options_(options) {}

  void called(StepContext& context) {
    if (name(context.event()) == options_.at && context.step_number() >= options_.step)
      nap_.take(options_.seconds, options_.sign);
  }

 private:
  Options options_;
  faulty::Nap nap_;
};

}  // namespace

TRAINYARD_PLUGIN(SlowHook)
