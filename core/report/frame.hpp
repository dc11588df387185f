// Maps values and steps to coordinates in a drawing.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/report/bands.hpp"
#include "core/report/numbers.hpp"

namespace trainyard::report {

constexpr double plot_width = 600, plot_height = 220;

/// The extents of a drawing. Values are laid out by their logarithm where all are positive, reach over three orders of
/// magnitude and are more than two a curve.
class Frame {
 public:
  explicit Frame(const std::vector<Band>& bands) {
    std::vector<double> all;
    for (const Band& band : bands)
      for (const Spread& each : band) {
        from_ = std::min(from_, static_cast<double>(each.step));
        to_ = std::max(to_, static_cast<double>(each.step));
        if (!std::isfinite(each.mean)) continue;
        lowest_ = std::min(lowest_, bounded(each.low));
        highest_ = std::max(highest_, bounded(each.high));
        all.push_back(each.mean);
      }
    if (all.empty()) {
      lowest_ = 0.0, highest_ = 1.0;
    } else {
      auto low = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 20);
      std::nth_element(all.begin(), low, all.end());
      log_ = all.size() > 2 * bands.size() && lowest_ > 0.0 && highest_ / *low >= 1000.0;
    }
    low_ = scaled(lowest_), high_ = scaled(highest_);
    const double margin = high_ > low_ ? (high_ - low_) / 25 : std::max(std::abs(high_) / 10, 1e-9);
    low_ -= margin, high_ += margin;
  }

  double x(double step) const {
    return to_ > from_ ? (step - from_) / (to_ - from_) * plot_width : plot_width / 2;
  }
  double y(double value) const { return (high_ - scaled(value)) / (high_ - low_) * plot_height; }
  double from() const { return from_; }
  double to() const { return to_; }
  double low() const { return low_; }
  double high() const { return high_; }
  double lowest() const { return lowest_; }
  double highest() const { return highest_; }
  bool log() const { return log_; }

  /// Returns round values within the drawing, for its grid lines.
  std::vector<double> values() const {
    if (!log_) return round_numbers(low_, high_, 4);
    std::vector<double> powers;
    const double each = std::max(1.0, std::ceil((high_ - low_) / 5));
    for (double power = std::ceil(low_); power <= high_; power += each)
      powers.push_back(std::pow(10.0, power));
    return powers;
  }
  std::vector<double> steps() const { return round_numbers(from_, to_, 4); }

 private:
  /// Bounds a value so that the distance between any two is finite.
  static double bounded(double value) { return std::clamp(value, -4e307, 4e307); }
  double scaled(double value) const { return log_ ? std::log10(value) : bounded(value); }

  double from_ = std::numeric_limits<double>::infinity(), to_ = -from_;
  double lowest_ = from_, highest_ = -from_;
  double low_ = 0.0, high_ = 1.0;
  bool log_ = false;
};

}  // namespace trainyard::report
