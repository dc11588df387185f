// Fits times by constants that are not below 0.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace srifty {

/// One measured time, which is to be `first` times one constant plus `second` times another.
struct Observation {
  double first = 0.0, second = 0.0, seconds = 0.0;
};

/// Returns the two constants, neither below 0, with the least sum of squared relative errors; the second one alone
/// where all observations are multiples of one. `second` is above 0 in each.
inline std::pair<double, double> fit_two(std::span<const Observation> observations) {
  double aa = 0, ab = 0, bb = 0, a = 0, b = 0;
  for (const Observation& each : observations) {
    const double x = each.first / each.seconds, y = each.second / each.seconds;
    aa += x * x;
    ab += x * y;
    bb += y * y;
    a += x;
    b += y;
  }
  const double area = aa * bb - ab * ab;
  if (area <= 1e-12 * aa * bb) return {0.0, b / bb};
  const double first = (a * bb - b * ab) / area, second = (aa * b - ab * a) / area;
  if (first < 0.0) return {0.0, b / bb};
  if (second < 0.0) return {a / aa, 0.0};
  return {first, second};
}

/// Seconds that a micro-batch of so many samples takes: a line, or two lines on both sides of a knee where the
/// measured times say so clearly (by the Bayesian information criterion).
class BatchTimes {
 public:
  struct Point {
    double samples = 0.0, seconds = 0.0;
  };

  BatchTimes() = default;
  /// Takes at least one point; sorted by samples, all times above 0.
  explicit BatchTimes(const std::vector<Point>& points) {
    low_ = high_ = line(points);
    double best = criterion(points, 2);
    for (std::size_t cut = 2; cut + 2 <= points.size(); ++cut) {
      const std::span all(points);
      BatchTimes two;
      two.low_ = line(all.first(cut));
      two.high_ = line(all.subspan(cut));
      two.knee_ = std::sqrt(points[cut - 1].samples * points[cut].samples);
      const double value = two.criterion(points, 5);
      if (value >= best) continue;
      best = value;
      *this = two;
    }
  }

  double seconds(double samples) const {
    const auto& [constant, slope] = samples <= knee_ ? low_ : high_;
    return constant + slope * samples;
  }

 private:
  using Line = std::pair<double, double>;  ///< seconds, and seconds a sample

  static Line line(std::span<const Point> points) {
    std::vector<Observation> observations;
    for (const Point& each : points) observations.push_back({1.0, each.samples, each.seconds});
    return fit_two(observations);
  }

  double criterion(std::span<const Point> points, double constants) const {
    double squares = 0.0;
    for (const Point& each : points) {
      const double error = seconds(each.samples) / each.seconds - 1.0;
      squares += error * error;
    }
    const auto count = static_cast<double>(points.size());
    // Below a thousandth nothing is told apart from the clock's own errors.
    return count * std::log(squares / count + 1e-6) + constants * std::log(count);
  }

  Line low_, high_;
  double knee_ = 1e300;
};

}  // namespace srifty
