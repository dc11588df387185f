// torch's MultiStepLR: gamma^(number of falls at or before t). 30-60-90 is of the budget, not of ninety
// epochs.
#include <vector>

#include "shapes.hpp"

namespace {

using namespace trainyard;
using namespace schedules;

class MultiStep final : public Schedule {
 public:
  struct Options {
    double gamma = 0.1;
    std::vector<Duration> at = {
        {30, Duration::Unit::percent}, {60, Duration::Unit::percent}, {90, Duration::Unit::percent}};
  };
  static void describe(Manifest<Options>& m) {
    m.name("multi_step").version("1.0.0").summary("Falls by the factor gamma at given places.");
    m.option("gamma", &Options::gamma, "factor of a fall").range(0.0, 1.0);
    m.option("at", &Options::at, "places of the falls; one that is given twice counts twice");
  }
  explicit MultiStep(const Options& options) : options_(options) {}

  void open(const RunScale& scale) override {
    falls_.clear();
    for (const Duration& each : options_.at) falls_.push_back(schedule_steps("at", each, scale));
    std::sort(falls_.begin(), falls_.end());
  }
  double factor(const SchedulePoint& at) const override {
    const auto next = std::upper_bound(falls_.begin(), falls_.end(), at.step);
    return std::pow(options_.gamma, static_cast<double>(next - falls_.begin()));
  }

 private:
  Options options_;
  std::vector<std::int64_t> falls_;  ///< ascending
};

}  // namespace

TRAINYARD_PLUGIN(MultiStep)
