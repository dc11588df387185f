// Asks for every so many steps to be skipped, and is at no event of micro-batches: for executors that fire none.
#include <trainyard/hook.hpp>

namespace {

using namespace trainyard;

class Skipping final : public Hook {
 public:
  struct Options {
    std::int64_t first = 3, period = 4;
  };
  static void describe(Manifest<Options>& m) {
    m.name("skipping").version("1.0.0").summary("Skips steps.");
    m.option("first", &Options::first, "number of the first step that is skipped");
    m.option("period", &Options::period, "steps to the next one").min(1);
    m.hook<&Skipping::before_step>(Event::before_step).writes(Region::control);
  }
  explicit Skipping(const Options& options) : options_(options) {}

  void before_step(StepContext& context) {
    const std::int64_t since = context.step_number() - options_.first;
    if (since >= 0 && since % options_.period == 0) context.request(Control::skip_step, "as it was told");
  }

 private:
  const Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Skipping)
