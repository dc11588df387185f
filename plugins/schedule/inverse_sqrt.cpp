// Vaswani et al., "Attention Is All You Need", 2017, section 5.3 ("noam"), scaled to 1 at its peak: with n =
// t + 1 the number of the step and w the rise, min(n / w, sqrt(w / n)).
#include "shapes.hpp"

namespace {

using namespace trainyard;
using namespace schedules;

class InverseSqrt final : public Schedule {
 public:
  struct Options {
    Duration rise{5, Duration::Unit::percent};
  };
  static void describe(Manifest<Options>& m) {
    m.name("inverse_sqrt").version("1.0.0").summary("Up in a line, then with one over the root of the step.");
    m.option("rise", &Options::rise, "steps up to the factor 1, at least one; 4000ba as published");
  }
  explicit InverseSqrt(const Options& options) : options_(options) {}

  void open(const RunScale& scale) override {
    rise_ = static_cast<double>(schedule_period("rise", options_.rise, scale));
  }
  double factor(const SchedulePoint& at) const override {
    const double number = static_cast<double>(at.step) + 1.0;
    return number <= rise_ ? number / rise_ : std::sqrt(rise_ / number);
  }

 private:
  Options options_;
  double rise_ = 1.0;
};

}  // namespace

TRAINYARD_PLUGIN(InverseSqrt)
