#include <algorithm>
#include <cmath>

#include <trainyard/schedule.hpp>

/// torch's StepLR: gamma^floor(t / every).
class Step final : public trainyard::Schedule {
 public:
  struct Options {
    double gamma = 0.1;
    trainyard::Duration every{30, trainyard::Duration::Unit::percent};
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("step").version("1.0.0").summary("Falls by the factor gamma at even distances.");
    m.option("gamma", &Options::gamma, "factor of a fall").range(0.0, 1.0);
    m.option("every", &Options::every, "distance of the falls");
  }
  explicit Step(const Options& options) : options_(options) {}

  void open(const trainyard::RunScale& scale) override {
    every_ = std::max<std::int64_t>(1, trainyard::schedule_steps("every", options_.every, scale));
  }
  double factor(const trainyard::SchedulePoint& at) const override {
    const std::int64_t falls = at.step / every_;
    return std::pow(options_.gamma, static_cast<double>(falls));
  }

 private:
  Options options_;
  std::int64_t every_ = 1;
};
TRAINYARD_PLUGIN(Step)
