#include <trainyard/schedule.hpp>

#include <algorithm>
#include <cmath>

namespace trainyard {
namespace {

std::int64_t steps(const char* option, const Duration& length, const RunScale& scale) {
  if (const auto count = length.steps(scale)) return *count;
  const std::string given = std::string("schedule.") + option + " = \"" + length.text() + "\"";
  if (length.unit == Duration::Unit::seconds)
    throw ConfigError(given + " is wall time, which a schedule cannot count in; use ep, ba, sp, tok or %");
  if (length.unit == Duration::Unit::tokens)
    throw ConfigError(given + " counts tokens, which this data does not have; use ep, ba, sp or %");
  throw ConfigError(given + " cannot be converted to steps of this run; use ba");
}

}  // namespace

ScheduleCurve::ScheduleCurve(const Schedule& schedule, const RunScale& scale, CurvePlace place)
    : schedule_(&schedule),
      place_(place),
      floor_(schedule.common.floor),
      warmup_start_(schedule.common.warmup_start),
      total_(scale.total_steps) {
  const ScheduleOperators& operators = schedule.common;
  warmup_ = steps("warmup", operators.warmup, scale);
  delay_ = steps("delay", operators.delay, scale);
  sampling_ = std::max<std::int64_t>(1, steps("sampling", operators.sampling, scale));
  if (total_ > 0 && (warmup_ > total_ || delay_ > total_ - warmup_))
    throw ConfigError("schedule.warmup = \"" + operators.warmup.text() + "\" (" + std::to_string(warmup_) +
                      " steps) and schedule.delay = \"" + operators.delay.text() + "\" (" +
                      std::to_string(delay_) + " steps) exceed the run of " + std::to_string(total_) +
                      " steps; shorten them or raise trainer.max_duration");
}

double ScheduleCurve::factor(std::int64_t done) const {
  return place_.gain * at(done - place_.start);
}

double ScheduleCurve::at(std::int64_t done) const {
  const auto curve = [&](double progress) {
    const double factor = schedule_->factor(progress);
    if (!std::isfinite(factor))
      throw PluginError("the schedule gave the factor " + std::to_string(factor) + " at progress " +
                        std::to_string(progress) + "; a finite number is needed");
    return floor_ + (1.0 - floor_) * factor;
  };
  if (done < warmup_)
    return warmup_start_ +
           (curve(0.0) - warmup_start_) * static_cast<double>(done) / static_cast<double>(warmup_);
  const std::int64_t start = warmup_ + delay_;
  if (done < start || total_ <= 0) return curve(0.0);
  if (done >= total_) return curve(1.0);
  const std::int64_t sampled = (done - start) / sampling_ * sampling_;
  return curve(static_cast<double>(sampled) / static_cast<double>(total_ - start));
}

}  // namespace trainyard
