// Checks for a test that is a plain program: a failed check is printed with its place, and the program exits
// with 1. Use a framework of yours instead where you have one: nothing else in trainyard/testing needs these.
//
//   int main() {
//     EXPECT(2 + 2 == 4);
//     EXPECT_THROWS(trainyard::ConfigError, "power", make());
//     return trainyard::testing::done();
//   }
#pragma once

#include <cmath>
#include <cstdio>
#include <exception>
#include <string_view>

namespace trainyard::testing {

/// Returns the number of failed checks so far; each program has its own count.
inline int& failures() {
  static int count = 0;
  return count;
}

inline void expect(bool holds, const char* what, const char* file, int line, const char* why = "") {
  if (holds) return;
  ++failures();
  std::fprintf(stderr, "%s:%d: does not hold: %s%s\n", file, line, what, why);
}

/// Returns the exit code of the test.
inline int done() {
  if (failures() > 0) std::fprintf(stderr, "%d checks do not hold\n", failures());
  return failures() > 0 ? 1 : 0;
}

inline bool near(double a, double b, double tolerance = 1e-6) {
  return std::abs(a - b) <= tolerance;
}

/// Returns whether `call` throws an `Error` whose message contains `part`.
template <class Error, class Call>
bool throws(std::string_view part, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    if (std::string_view(error.what()).find(part) != std::string_view::npos) return true;
    std::fprintf(stderr, "it says: %s\n", error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "another error: %s\n", error.what());
  }
  return false;
}

}  // namespace trainyard::testing

#define EXPECT(...) \
  ::trainyard::testing::expect(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)
#define EXPECT_THROWS(ERROR, PART, ...)                                                                 \
  ::trainyard::testing::expect(::trainyard::testing::throws<ERROR>(PART, [&] { (void)(__VA_ARGS__); }), \
                               #__VA_ARGS__, __FILE__, __LINE__, " (is to throw " #ERROR ")")
