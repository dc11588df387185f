// Caught by options.bounds: an option at its lowest value divides by zero.
#include <trainyard/schedule.hpp>

using namespace trainyard;

class ByZero final : public Schedule {
 public:
  struct Options {
    std::int64_t period = 10;
  };
  static void describe(Manifest<Options>& m) {
    m.name("by_zero").version("1.0.0").summary("A plugin with a mistake.");
    m.option("period", &Options::period, "steps of a period").min(0);
    m.needs("steps");
  }
  explicit ByZero(const Options& options) : period_(options.period) {}

  double factor(const SchedulePoint& at) const override { return at.step % period_ == 0 ? 1.0 : 0.9; }

 private:
  std::int64_t period_;
};
TRAINYARD_PLUGIN(ByZero)
