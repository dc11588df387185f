#include <trainyard/schedule.hpp>

#include <algorithm>
#include <cmath>

namespace trainyard {

std::int64_t schedule_steps(const char* option, const Duration& length, const RunScale& scale) {
  if (const auto count = length.steps(scale)) return *count;
  const std::string given = std::string("schedule.") + option + " = \"" + length.text() + "\"";
  if (length.unit == Duration::Unit::seconds)
    throw ConfigError(given + " is wall time, which a schedule cannot count in; use ep, ba, sp, tok or %");
  if (length.unit == Duration::Unit::tokens)
    throw ConfigError(given + " counts tokens, which this data does not have; use ep, ba, sp or %");
  throw ConfigError(given + " cannot be converted to steps of this run; use ba");
}

namespace {

using Shape = double (*)(double);

Shape warmup_curve(const std::string& name) {
  if (name == "cosine") return [](double u) { return (1.0 - std::cos(std::acos(-1.0) * u)) / 2.0; };
  if (name == "1-sqrt") return [](double u) { return 1.0 - std::sqrt(1.0 - u); };
  return [](double u) { return u; };
}

}  // namespace

ScheduleCurve::ScheduleCurve(Schedule& schedule, const RunScale& scale, CurvePlace place)
    : schedule_(&schedule),
      place_(place),
      floor_(schedule.common.floor),
      warmup_start_(schedule.common.warmup_start),
      warmup_curve_(warmup_curve(schedule.common.warmup_curve)),
      total_(scale.total_steps) {
  const ScheduleOperators& operators = schedule.common;
  if (operators.budget) total_ = schedule_steps("budget", *operators.budget, scale);
  RunScale rest = scale;
  rest.total_steps = total_;
  warmup_ = schedule_steps("warmup", operators.warmup, rest);
  delay_ = schedule_steps("delay", operators.delay, rest);
  sampling_ = std::max<std::int64_t>(1, schedule_steps("sampling", operators.sampling, rest));
  if (total_ > 0 && (warmup_ > total_ || delay_ > total_ - warmup_))
    throw ConfigError("schedule.warmup = \"" + operators.warmup.text() + "\" (" + std::to_string(warmup_) +
                      " steps) and schedule.delay = \"" + operators.delay.text() + "\" (" +
                      std::to_string(delay_) + " steps) exceed the " + (operators.budget ? "budget" : "run") +
                      " of " + std::to_string(total_) + " steps; shorten them or raise " +
                      (operators.budget ? "schedule.budget" : "trainer.max_duration"));
  if (total_ > 0) rest.total_steps = total_ - warmup_ - delay_;
  for (const Duration& each : operators.milestones)
    milestones_.push_back(schedule_steps("milestones", each, rest));
  std::sort(milestones_.begin(), milestones_.end());
  schedule.open(rest);
}

double ScheduleCurve::factor(std::int64_t done) const {
  return place_.gain * warmed(done - place_.start);
}

std::optional<double> ScheduleCurve::momentum(std::int64_t done) const {
  const std::optional<double> momentum = schedule_->momentum(point(done - place_.start));
  if (momentum && !(*momentum >= 0.0 && *momentum < 1.0))
    throw PluginError("the schedule gave the momentum " + std::to_string(*momentum) +
                      "; a number from 0 to below 1 is needed");
  return momentum;
}

double ScheduleCurve::warmed(std::int64_t done) const {
  if (done >= warmup_) return at(point(done));
  const double way = warmup_curve_(static_cast<double>(done) / static_cast<double>(warmup_));
  return warmup_start_ + (at(point(done)) - warmup_start_) * way;
}

double ScheduleCurve::at(const SchedulePoint& point) const {
  const double factor = schedule_->factor(point);
  if (!std::isfinite(factor))
    throw PluginError("the schedule gave the factor " + std::to_string(factor) + " at progress " +
                      std::to_string(point.progress) + "; a finite number is needed");
  return floor_ + (1.0 - floor_) * factor;
}

SchedulePoint ScheduleCurve::point(std::int64_t done) const {
  const std::int64_t start = warmup_ + delay_;
  const bool bounded = total_ > 0;
  const std::int64_t length = bounded ? total_ - start : 0;
  if (bounded && done >= total_) return {1.0, length, length};
  std::int64_t step = std::max<std::int64_t>(0, done - start);
  if (milestones_.empty()) {
    step -= step % sampling_;
  } else {
    const auto next = std::upper_bound(milestones_.begin(), milestones_.end(), step);
    step = next == milestones_.begin() ? 0 : *std::prev(next);
  }
  return {bounded && length > 0 ? static_cast<double>(step) / static_cast<double>(length) : 0.0, step,
          length};
}

}  // namespace trainyard
