// schedule/1: gives the learning-rate factor, and where a schedule cycles it the momentum, as a pure function
// of the place in the run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/duration.hpp>
#include <trainyard/plugin.hpp>

TRAINYARD_CONTRACT("schedule.hpp");

namespace trainyard {

/// Operators that every schedule gets, applied by the host around `Schedule::factor`. With t the number of
/// steps done, T the budget in steps and curve(p) = floor + (1 - floor) * factor(p):
///   t < warmup          from warmup_start, at step 0, to curve(0), at step warmup; with u = t / warmup along
///                       u ("linear"), (1 - cos(pi u)) / 2 ("cosine") or 1 - sqrt(1 - u) ("1-sqrt")
///   warmup .. + delay   curve(0)
///   then                curve(p), p = (t - warmup - delay) / (T - warmup - delay)
///   t >= T              curve(1)
/// where p moves only every `sampling` steps ("1ep": once an epoch), counted from the first step after the
/// delay; by default, and for a sampling finer than a step, each step. With `milestones` p moves at those
/// places of what follows the delay instead: before the first p is 0, from each on it is there.
struct ScheduleOperators {
  Duration warmup{0, Duration::Unit::steps};
  double warmup_start = 0.0;
  std::string warmup_curve = "linear";
  Duration delay{0, Duration::Unit::steps};
  double floor = 0.0;
  Duration sampling{1, Duration::Unit::steps};
  std::vector<Duration> milestones;
  std::optional<Duration> budget;

  static void describe(Fields<ScheduleOperators>& m) {
    m.option("warmup", &ScheduleOperators::warmup, "length of the warm-up");
    m.option("warmup_start", &ScheduleOperators::warmup_start, "factor at step 0 of the warm-up")
        .range(0.0, 1.0);
    m.option("warmup_curve", &ScheduleOperators::warmup_curve, "the way up")
        .one_of({"linear", "cosine", "1-sqrt"});
    m.option("delay", &ScheduleOperators::delay, "length at the initial factor after the warm-up");
    m.option("floor", &ScheduleOperators::floor, "lowest factor: the curve is squeezed above it")
        .range(0.0, 1.0);
    m.option("sampling", &ScheduleOperators::sampling, "how often the factor is computed anew");
    m.option(
        "milestones", &ScheduleOperators::milestones,
        "where the factor is computed anew, in place of every `sampling`; % is of what follows the delay");
    m.option("budget", &ScheduleOperators::budget,
             "length of the whole, warm-up and delay included; by default that of the run");
  }
};

/// The point at which a schedule is read: a place in what warm-up and delay leave of the budget.
struct SchedulePoint {
  double progress = 0.0;   ///< share of that part that is done, in [0, 1]; 1 after its last step only
  std::int64_t step = 0;   ///< steps of it that are done
  std::int64_t steps = 0;  ///< its length; 0 in a run that is bounded by wall time, where progress stays 0
};

class Schedule : public Plugin {
 public:
  static constexpr Kind kind{"schedule", 1};
  using Common = ScheduleOperators;

  /// Called before the first factor is asked for, and again where the beginning or the budget moves: the
  /// place to convert options to steps. `scale.total_steps` is SchedulePoint::steps. Throws ConfigError.
  virtual void open(const RunScale&) {}

  /// Returns the factor on the base learning rate. Must be a pure function of the point, of `open` and of
  /// state that is saved: earlier calls do not matter. A schedule that moves declares `needs("steps")`.
  virtual double factor(const SchedulePoint& at) const = 0;

  /// Returns the momentum in place of the optimizer's own, where the schedule cycles it.
  virtual std::optional<double> momentum(const SchedulePoint&) const { return std::nullopt; }

  Common common;
};

/// Converts a length among the options of a schedule to steps. Throws ConfigError, which names the option,
/// where this run cannot tell: wall time, a share of a run of unknown length, tokens of data without.
std::int64_t schedule_steps(const char* option, const Duration& length, const RunScale& scale);

/// The place of a curve that was swapped in while the run was going: it begins at step `start`, and its
/// factor is multiplied by `gain`.
struct CurvePlace {
  std::int64_t start = 0;
  double gain = 1.0;
};

/// Resolves the operators above against a run: factor and momentum of the step after `done` completed steps.
class ScheduleCurve {
 public:
  /// Opens the schedule, which must outlive the curve. `scale.total_steps` counts from `place.start`. Throws
  /// ConfigError where a length is not known for this run (wall time), or warm-up and delay exceed the
  /// budget.
  ScheduleCurve(Schedule& schedule, const RunScale& scale, CurvePlace place = {});
  /// Returns the factor. Throws PluginError where the schedule gives no finite number.
  double factor(std::int64_t done) const;
  /// Returns the schedule's momentum at the same point; during warm-up and delay, at its beginning.
  std::optional<double> momentum(std::int64_t done) const;
  /// Returns the steps from the start of the run to the end of the budget; 0: not known.
  std::int64_t end() const { return total_ > 0 ? place_.start + total_ : 0; }

 private:
  double at(const SchedulePoint& point) const;
  double warmed(std::int64_t done) const;
  SchedulePoint point(std::int64_t done) const;

  const Schedule* schedule_;
  CurvePlace place_;
  double floor_, warmup_start_;
  double (*warmup_curve_)(double);
  std::int64_t warmup_, delay_, sampling_, total_;
  std::vector<std::int64_t> milestones_;  ///< ascending; empty: every `sampling_` steps
};

}  // namespace trainyard
