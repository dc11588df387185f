#include "summaries.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <boost/math/distributions/students_t.hpp>

namespace audit {

double potential(double parents_error, double delta, std::span<const AtRatio> errors) {
  constexpr double rounding = 1e-12;  // errors are counts by the number of samples
  double most = 0.0;
  for (const AtRatio& each : errors)
    if (each.value <= parents_error + delta + rounding) most = std::max(most, each.ratio);
  return most;
}

Slope slope_through_origin(std::span<const AtRatio> points) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  double xx = 0.0, xy = 0.0, residual = 0.0;
  for (const auto& [x, y] : points) {
    xx += x * x;
    xy += x * y;
  }
  if (xx == 0.0) return {nan, nan, nan};
  const double slope = xy / xx;
  if (points.size() < 2) return {slope, nan, nan};
  for (const auto& [x, y] : points) residual += (y - slope * x) * (y - slope * x);
  const auto freedom = static_cast<double>(points.size() - 1);
  const boost::math::students_t student(freedom);
  const double reach = boost::math::quantile(student, 0.975) * std::sqrt(residual / freedom / xx);
  return {slope, slope - reach, slope + reach};
}

}  // namespace audit
