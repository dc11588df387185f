#include <trainyard/schedule.hpp>

#include "thrower.hpp"

class ScheduleThrower final : public trainyard::Schedule {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) { describe_thrower(m, {}, {"factor"}); }
  explicit ScheduleThrower(const Options& options) : options_(options) {}
  double factor(const trainyard::SchedulePoint&) const override {
    options_.at("factor");
    return 1.0;
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(ScheduleThrower)
