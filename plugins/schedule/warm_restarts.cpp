// Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017, equation 5: half
// a cosine in each of the cycles of first, first * mult, first * mult^2 ... steps. A cycle that ends with the
// budget is not followed by another: the end holds.
#include "shapes.hpp"

namespace {

using namespace trainyard;
using namespace schedules;

class WarmRestarts final : public Schedule {
 public:
  struct Options {
    Duration first{25, Duration::Unit::percent};
    std::int64_t mult = 1;
  };
  static void describe(Manifest<Options>& m) {
    m.name("warm_restarts").version("1.0.0").summary("Half cosines from 1 to 0, one after the other.");
    m.option("first", &Options::first, "length of the first cycle");
    m.option("mult", &Options::mult, "length of a cycle over that of the one before it").range(1, 1000);
  }
  explicit WarmRestarts(const Options& options) : options_(options) {}

  void open(const RunScale& scale) override { first_ = schedule_period("first", options_.first, scale); }
  double factor(const SchedulePoint& at) const override {
    std::int64_t length = first_, step = at.step;
    if (options_.mult == 1) {
      step %= length;
    } else {
      for (; step >= length; length *= options_.mult) step -= length;
    }
    const bool over = step == 0 && at.step > 0 && at.step == at.steps;
    return half_cosine(over ? Share{1.0, 0.0}
                            : share(static_cast<double>(step), static_cast<double>(length)));
  }

 private:
  Options options_;
  std::int64_t first_ = 1;
};

}  // namespace

TRAINYARD_PLUGIN(WarmRestarts)
