// Li et al., "Budgeted Training: Rethinking Deep Neural Network Training Under Resource Constraints", ICLR
// 2020, section 3.2, with any ends: start_factor (1 - u) + end_factor u. With a length it is torch's
// LinearLR.
#include "shapes.hpp"

namespace {

using namespace trainyard;
using namespace schedules;

class Linear final : public Schedule {
 public:
  struct Options {
    double start_factor = 1.0;
    double end_factor = 0.0;
    std::optional<Duration> length;
  };
  static void describe(Manifest<Options>& m) {
    m.name("linear").version("1.1.0").summary("A line from start_factor to end_factor over the budget.");
    m.needs("steps");
    m.option("start_factor", &Options::start_factor, "factor at the beginning").range(0.0, 1.0);
    m.option("end_factor", &Options::end_factor, "factor at the end").range(0.0, 1.0);
    m.option("length", &Options::length, "when the end is reached; by default that of the budget");
  }
  explicit Linear(const Options& options) : options_(options) {}

  void open(const RunScale& scale) override { length_ = schedule_steps("length", options_.length, scale); }
  double factor(const SchedulePoint& at) const override {
    const Share share = schedules::share(at, length_);
    return options_.start_factor * share.left + options_.end_factor * share.done;
  }

 private:
  Options options_;
  std::optional<std::int64_t> length_;
};

}  // namespace

TRAINYARD_PLUGIN(Linear)
