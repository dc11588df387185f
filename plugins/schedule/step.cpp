// torch's StepLR: gamma^floor(t / every).
#include "schedule_shapes.hpp"

namespace {

using namespace trainyard;

class Step final : public Schedule {
 public:
  struct Options {
    double gamma = 0.1;
    Duration every{30, Duration::Unit::percent};
  };
  static void describe(Manifest<Options>& m) {
    m.name("step").version("1.0.0").summary("Falls by the factor gamma at even distances.");
    m.option("gamma", &Options::gamma, "factor of a fall").range(0.0, 1.0);
    m.option("every", &Options::every, "distance of the falls");
  }
  explicit Step(const Options& options) : options_(options) {}

  void open(const RunScale& scale) override { every_ = schedule_period("every", options_.every, scale); }
  double factor(const SchedulePoint& at) const override {
    return std::pow(options_.gamma, static_cast<double>(at.step / every_));
  }

 private:
  Options options_;
  std::int64_t every_ = 1;
};

}  // namespace

TRAINYARD_PLUGIN(Step)
