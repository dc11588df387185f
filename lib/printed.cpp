#include "lib/printed.hpp"

#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace trainyard::lib {

std::string printed(const char* format, ...) {  // NOLINT(cert-dcl50-cpp): the compiler checks the arguments
  char text[501];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

std::string metric_text(double value) {
  const double size = std::abs(value);
  return printed(value == 0 || (size >= 1e-3 && size < 1e4) ? "%.4f" : "%.3e", value);
}

std::string rate_text(double per_second) {
  if (per_second < 1e3) return printed("%.0f", per_second);
  return per_second < 1e6 ? printed("%.1fk", per_second / 1e3) : printed("%.1fM", per_second / 1e6);
}

std::string float_text(double value) {
  const std::string text = shortest(value);
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}

}  // namespace trainyard::lib
