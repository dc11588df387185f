// Prints numbers.
#pragma once

#include <charconv>
#include <iterator>
#include <string>

namespace trainyard::lib {

/// Prints as printf does, at most 500 characters: a double has up to 309 digits before the point.
[[gnu::format(printf, 1, 2)]] std::string printed(const char* format, ...);

/// Prints a metric: "0.0123", "1.230e-05".
std::string metric_text(double value);

/// Prints how many a second there are: "12", "3.4k", "5.6M".
std::string rate_text(double per_second);

/// Returns the shortest text that reads back as the same number: "0.1", "1", "1e-09", "inf", "-nan".
template <class Number>
std::string shortest(Number value) {
  char text[40];
  return {text, std::to_chars(text, std::end(text), value).ptr};
}

/// Returns the shortest text that reads back as the same number and never as an integer: "1.0".
std::string float_text(double value);

}  // namespace trainyard::lib
