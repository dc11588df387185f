// Seconds since a moment.
#pragma once

#include <chrono>

namespace tensat {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace tensat
