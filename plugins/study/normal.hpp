// Numbers of the standard normal distribution.
#pragma once

#include <cmath>
#include <numbers>

namespace studies {

/// Returns one from two numbers in [0, 1): Box and Muller, 1958.
inline double normal(double first, double second) {
  return std::sqrt(-2.0 * std::log1p(-first)) * std::cos(2.0 * std::numbers::pi * second);
}

}  // namespace studies
