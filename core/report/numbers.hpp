// Formats numbers for people.
#pragma once

#include <cmath>
#include <string>

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

/// Formats a duration in seconds: "0.0123 s", "12.3 s", "2 h 05 min".
inline std::string seconds(double value) {
  if (value < 600) return lib::printed("%.3g s", value);
  return lib::printed("%.0f h %02.0f min", std::floor(value / 3600), std::floor(std::fmod(value, 3600) / 60));
}

}  // namespace trainyard::report
