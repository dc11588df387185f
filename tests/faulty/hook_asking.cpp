// Asks something of the loop at the end of one step, and holds no state: whether the loop remembers what it
// was asked shows when the run goes on elsewhere.
#include <trainyard/hook.hpp>

namespace {

using namespace trainyard;

class Asking final : public Hook {
 public:
  struct Options {
    std::string ask = "stop_run";
    std::int64_t step = 1;
  };
  static void describe(Manifest<Options>& m) {
    m.name("asking").version("1.0.0").summary("Asks something of the loop, once.");
    m.option("ask", &Options::ask, "what").one_of({"stop_run", "stop_epoch", "evaluate", "checkpoint"});
    m.option("step", &Options::step, "number of the step after which it asks");
    m.hook<&Asking::batch_end>(Event::batch_end).writes(Region::control);
  }
  explicit Asking(const Options& options) : options_(options) {}

  void batch_end(StepContext& context) {
    if (context.step_number() != options_.step) return;
    for (int i = 0; i < control_count; ++i)
      if (control_names[i] == options_.ask) context.request(static_cast<Control>(1 << i), "as it was told");
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Asking)
