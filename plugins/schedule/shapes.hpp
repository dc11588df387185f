// What schedules share: where they stand in a stretch of steps, and half a cosine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <optional>

#include <trainyard/schedule.hpp>

namespace schedules {

using namespace trainyard;

/// The share of a stretch that is done and the one that is left, in [0, 1]. Both from whole steps: 1 - done
/// would lose ten digits at the end of a million.
struct Share {
  double done = 0.0;
  double left = 1.0;
};

/// A stretch of no length is over.
inline Share share(double step, double length) {
  if (step >= length) return {1.0, 0.0};
  return {std::max(0.0, step / length), std::min(1.0, (length - step) / length)};
}

/// Of the first `length` steps; without one, of the whole budget.
inline Share share(const SchedulePoint& at, std::optional<std::int64_t> length = std::nullopt) {
  if (!length && at.steps == 0) return {at.progress, 1.0 - at.progress};
  return share(static_cast<double>(at.step), static_cast<double>(length.value_or(at.steps)));
}

/// (1 + cos(pi * done)) / 2, exact to the last digits near its end, too.
inline double half_cosine(const Share& share) {
  const double sine = std::sin(std::numbers::pi / 2 * share.left);
  return sine * sine;
}

/// An optional length in steps.
inline std::optional<std::int64_t> schedule_steps(const char* option, const std::optional<Duration>& length,
                                                  const RunScale& scale) {
  if (!length) return std::nullopt;
  return schedule_steps(option, *length, scale);
}

/// A length that is repeated: at least a step.
inline std::int64_t schedule_period(const char* option, const Duration& length, const RunScale& scale) {
  return std::max<std::int64_t>(1, schedule_steps(option, length, scale));
}

}  // namespace schedules
