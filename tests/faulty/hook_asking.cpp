// Asks something of the loop at an event of one step, or of every so many, and holds no state: whether the loop
// remembers what it was asked shows when the run goes on elsewhere.
#include <iterator>

#include <trainyard/hook.hpp>

#include "fault.hpp"

namespace {

using namespace trainyard;

class Asking final : public Hook {
 public:
  struct Options {
    std::string ask = "stop_run", at = "batch_end";
    std::int64_t step = 1, period = 0, times = 1, rank = -1;
  };
  /// Not before_backward, which an executor that goes its own way need not fire.
  static bool asks_at(Event event) { return controls(event) != 0 && event != Event::before_backward; }
  static void describe(Manifest<Options>& m) {
    m.name("asking").version("1.0.0").summary("Asks something of the loop.");
    m.option("ask", &Options::ask, "what")
        .one_of(std::vector<std::string>(std::begin(control_names), std::end(control_names)));
    m.option("at", &Options::at, "the event at which it asks");
    m.option("step", &Options::step, "number of the first step in which it asks");
    m.option("period", &Options::period, "steps to the next one; 0: there is none");
    m.option("rank", &Options::rank, "which alone asks; -1: all");
    m.option("times", &Options::times, "how often it asks in a step where the event comes again");
    for (std::size_t i = 0; i < event_count; ++i)
      if (const auto event = static_cast<Event>(i); asks_at(event))
        m.hook<&Asking::called>(event).writes(Region::control);
  }
  explicit Asking(const Options& options) : options_(options) {}

  void called(StepContext& context) {
    const std::int64_t since = context.step_number() - options_.step;
    if (name(context.event()) != options_.at || since < 0 || !faulty::on_rank(options_.rank)) return;
    if (options_.period == 0 ? since != 0 : since % options_.period != 0) return;
    asked_ = since == last_ ? asked_ + 1 : 1;
    last_ = since;
    if (asked_ > options_.times) return;
    for (int i = 0; i < control_count; ++i)
      if (control_names[i] == options_.ask) context.request(static_cast<Control>(1 << i), "as it was told");
  }

 private:
  Options options_;
  std::int64_t last_ = -1, asked_ = 0;
};

}  // namespace

TRAINYARD_PLUGIN(Asking)
