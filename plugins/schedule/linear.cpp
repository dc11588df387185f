// Li et al., "Budgeted Training: Rethinking Deep Neural Network Training Under Resource Constraints", ICLR
// 2020, section 3.2, with any end: 1 + (end_factor - 1) * p.
#include <trainyard/schedule.hpp>

namespace {

using namespace trainyard;

class Linear final : public Schedule {
 public:
  struct Options {
    double end_factor = 0.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("linear").version("1.0.0").summary("A line from 1 to end_factor over the budget.");
    m.needs("steps");
    m.option("end_factor", &Options::end_factor, "factor at the end of the budget").range(0.0, 1.0);
  }
  explicit Linear(const Options& options) : options_(options) {}
  double factor(const SchedulePoint& at) const override {
    return (1.0 - at.progress) + options_.end_factor * at.progress;
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Linear)
