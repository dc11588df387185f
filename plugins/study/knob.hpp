// A dimension of a search as a coordinate in [0, 1]: what searchers that move through a space need of it.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lib/printed.hpp"

namespace studies {

/// Returns the number of six digits: values that a table shows alike are one value.
inline double six_digits(double value) {
  const std::string text = trainyard::lib::printed("%.6g", value);
  double rounded = 0.0;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

struct Knob {
  enum class Kind : std::uint8_t {
    range,      ///< numbers from low to high
    steps,      ///< one of `count` values in their order; the value is its number
    unordered,  ///< the same, none of which lies between two others
  };

  Kind kind = Kind::range;
  double low = 0.0, high = 1.0;  ///< of a range
  bool log = false;              ///< even in the logarithm
  bool integer = false;
  double count = 0.0;

  /// Returns the value at a coordinate.
  double value(double at) const {
    if (kind != Kind::range) return std::min(std::floor(at * count), count - 1.0);
    const double value =
        log ? std::exp(std::log(low) + at * (std::log(high) - std::log(low))) : low + at * (high - low);
    return std::clamp(integer ? std::round(value) : six_digits(value), low, high);
  }

  /// Returns the coordinate of a value: of one among several the middle of its part.
  double at(double value) const {
    if (kind != Kind::range) return (value + 0.5) / count;
    return log ? (std::log(value) - std::log(low)) / (std::log(high) - std::log(low))
               : (value - low) / (high - low);
  }

  /// Returns the length of the least move from a value that leads to another one.
  double resolution(double value) const {
    if (kind != Kind::range || !integer) return std::numeric_limits<double>::infinity();
    return log ? std::log1p(1.0 / value) / (std::log(high) - std::log(low)) : 1.0 / (high - low);
  }
};

/// A value for each knob.
using Values = std::vector<double>;

}  // namespace studies
