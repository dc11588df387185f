// Wants a step once more, or a micro-batch left out, at the events that every executor with outputs fires: what an
// executor does that cannot.
#include <trainyard/hook.hpp>

namespace {

using namespace trainyard;

class Wanting final : public Hook {
 public:
  struct Options {
    std::string what = "repeat_step";
    std::int64_t step = 3;
  };
  static void describe(Manifest<Options>& m) {
    m.name("wanting").version("1.0.0").summary("Wants a step once more, or a micro-batch left out.");
    m.option("what", &Options::what, "what it wants").one_of({"repeat_step", "skip_micro"});
    m.option("step", &Options::step, "number of the step");
    m.hook<&Wanting::called>(Event::before_step).writes(Region::control);
    m.hook<&Wanting::called>(Event::before_backward).writes(Region::control);
  }
  explicit Wanting(const Options& options) : options_(options) {}

  void called(StepContext& context) {
    const bool repeats = options_.what == "repeat_step";
    if (context.step_number() == options_.step && repeats == (context.event() == Event::before_step))
      context.request(repeats ? Control::repeat_step : Control::skip_micro, "as it was told");
  }

 private:
  const Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Wanting)
