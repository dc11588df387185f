// schedule/1: the learning-rate factor as a pure function of progress.
#pragma once

#include <trainyard/duration.hpp>
#include <trainyard/plugin.hpp>

namespace trainyard {

/// Operators that every schedule gets, applied by the host around `Schedule::factor`. With t the number of
/// steps done, T the budget in steps and curve(p) = floor + (1 - floor) * factor(p):
///   t < warmup          linear from warmup_start, at step 0, to curve(0), at step warmup
///   warmup .. + delay   curve(0)
///   then                curve(p), p = (t - warmup - delay) / (T - warmup - delay)
///   t >= T              curve(1)
/// where p moves only every `sampling` steps ("1ep": once an epoch), counted from the first step after the
/// delay; by default, and for a sampling finer than a step, each step.
struct ScheduleOperators {
  Duration warmup{0, Duration::Unit::steps};
  double warmup_start = 0.0;
  Duration delay{0, Duration::Unit::steps};
  double floor = 0.0;
  Duration sampling{1, Duration::Unit::steps};

  static void describe(Fields<ScheduleOperators>& m) {
    m.option("warmup", &ScheduleOperators::warmup, "length of the linear warm-up");
    m.option("warmup_start", &ScheduleOperators::warmup_start, "factor at step 0 of the warm-up")
        .range(0.0, 1.0);
    m.option("delay", &ScheduleOperators::delay, "length at the initial factor after the warm-up");
    m.option("floor", &ScheduleOperators::floor, "lowest factor: the curve is squeezed above it")
        .range(0.0, 1.0);
    m.option("sampling", &ScheduleOperators::sampling, "how often the factor is computed anew");
  }
};

class Schedule : public Plugin {
 public:
  static constexpr Kind kind{"schedule", 1};
  using Common = ScheduleOperators;

  /// The factor on the base learning rate; `progress` in [0, 1] of the budget (1 is reached after the last
  /// step only). Must be a pure function. In a run that is bounded by wall time there is no progress, and it
  /// stays 0: a schedule that moves declares `needs("steps")`.
  virtual double factor(double progress) const = 0;

  Common common;
};

/// Where a curve stands that was swapped in while the run was going: it begins at step `start`, and its
/// factor is multiplied by `gain`.
struct CurvePlace {
  std::int64_t start = 0;
  double gain = 1.0;
};

/// The operators above, resolved against a run: the factor of the step after `done` completed steps.
class ScheduleCurve {
 public:
  /// `scale.total_steps` counts from `place.start`. Throws ConfigError where a length is not known for this
  /// run (wall time), or warm-up and delay exceed the budget. `schedule` must outlive the curve.
  ScheduleCurve(const Schedule& schedule, const RunScale& scale, CurvePlace place = {});
  /// Throws PluginError where the schedule gives no finite number.
  double factor(std::int64_t done) const;

 private:
  double at(std::int64_t done) const;

  const Schedule* schedule_;
  CurvePlace place_;
  double floor_, warmup_start_;
  std::int64_t warmup_, delay_, sampling_, total_;
};

}  // namespace trainyard
