// Either end_factor^p over the budget, or gamma^(t / per): with per = "1ba" that is torch's ExponentialLR. It
// moves at every step; for torch's use once an epoch take per = "1ep" and sampling = "1ep".
#include "shapes.hpp"

namespace {

using namespace trainyard;
using namespace schedules;

class Exponential final : public Schedule {
 public:
  struct Options {
    std::optional<double> end_factor;
    std::optional<double> gamma;
    Duration per{1, Duration::Unit::epochs};
  };
  static void describe(Manifest<Options>& m) {
    m.name("exponential").version("1.0.0").summary("Falls by the same factor over equal distances.");
    m.option("end_factor", &Options::end_factor,
             "factor at the end of the budget; 0.01 where neither it nor gamma is given")
        .above(0.0)
        .max(1.0);
    m.option("gamma", &Options::gamma, "in its place: factor over the distance `per`").above(0.0).max(1.0);
    m.option("per", &Options::per, "distance that gamma is for");
  }
  explicit Exponential(const Options& options) : options_(options) {}

  void open(const RunScale& scale) override {
    if (options_.gamma && options_.end_factor)
      throw ConfigError("schedule.gamma and schedule.end_factor both say how fast it falls; give one");
    if (!options_.gamma && scale.total_steps == 0)
      throw ConfigError(
          "schedule.end_factor is reached at the end of a budget in steps, which this run does not have; "
          "give "
          "schedule.gamma and schedule.per, or schedule.budget");
    per_ = static_cast<double>(schedule_period("per", options_.per, scale));
  }
  double factor(const SchedulePoint& at) const override {
    if (options_.gamma) return std::pow(*options_.gamma, static_cast<double>(at.step) / per_);
    return std::pow(options_.end_factor.value_or(0.01), share(at).done);
  }

 private:
  Options options_;
  double per_ = 1.0;
};

}  // namespace

TRAINYARD_PLUGIN(Exponential)
