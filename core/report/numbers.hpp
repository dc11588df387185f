// Formats numbers for people.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "lib/printed.hpp"

namespace trainyard::report {

/// Returns the value with `count` significant digits, or "nan".
inline std::string digits(double value, int count = 6) {
  return lib::printed("%.*g", count, value);
}

/// Formats a coordinate in pixels with at most one decimal, as nobody sees smaller differences.
inline std::string tenth(double value) {
  std::string short_one = lib::printed("%.1f", value);
  if (short_one.ends_with(".0")) short_one.resize(short_one.size() - 2);
  return short_one == "-0" ? "0" : short_one;
}

/// Returns some `count` round numbers from `low` to `high`, for the grid of a drawing.
inline std::vector<double> round_numbers(double low, double high, int count) {
  const double rough = (high - low) / count, power = std::pow(10.0, std::floor(std::log10(rough)));
  if (!std::isfinite(rough) || rough <= 0.0 || power <= 0.0) return {low};
  const double share = rough / power;
  const double each = power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
  std::vector<double> found;
  for (double i = std::ceil(low / each); i * each <= high; ++i) found.push_back(i * each + 0.0);  // no -0
  return found;
}

/// Formats a duration in seconds: "0.0123 s", "12.3 s", "2 h 05 min".
inline std::string seconds(double value) {
  if (value < 600) return lib::printed("%.3g s", value);
  return lib::printed("%.0f h %02.0f min", std::floor(value / 3600), std::floor(std::fmod(value, 3600) / 60));
}

}  // namespace trainyard::report
