// torch's ChainedScheduler: the product of the factors of several schedules, each read over the whole budget.
// It does not depend on their order, to the last bit.
#include <algorithm>

#include "parts.hpp"

namespace {

using namespace trainyard;
using namespace schedules;

class Chain final : public ScheduleOfParts {
 public:
  static void describe(Manifest<Options>& m) {
    m.name("chain").version("1.0.0").summary("The product of several schedules.");
    m.option("parts", &Options::parts, "the schedules, with operators of their own").required();
  }
  explicit Chain(const Options& options) : ScheduleOfParts(options) {}

  void open(const RunScale& scale) override {
    curves_.clear();
    for (const auto& part : parts()) curves_.emplace_back(*part, scale);
    const auto cycles = [](const ScheduleCurve& curve) { return curve.momentum(0).has_value(); };
    if (std::count_if(curves_.begin(), curves_.end(), cycles) > 1)
      throw ConfigError(
          "more than one of schedule.parts cycles the momentum; set cycle_momentum = false in all others");
  }
  double factor(const SchedulePoint& at) const override {
    std::vector<double> factors;
    factors.reserve(curves_.size());
    for (const ScheduleCurve& curve : curves_) factors.push_back(curve.factor(at.step));
    std::sort(factors.begin(), factors.end());  // a product of doubles depends on the order
    double product = 1.0;
    for (const double each : factors) product *= each;
    return product;
  }
  std::optional<double> momentum(const SchedulePoint& at) const override {
    for (const ScheduleCurve& curve : curves_)
      if (const std::optional<double> momentum = curve.momentum(at.step)) return momentum;
    return std::nullopt;
  }

 private:
  std::vector<ScheduleCurve> curves_;
};

}  // namespace

TRAINYARD_PLUGIN(Chain)
