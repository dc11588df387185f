// The time in plugins that the loop calls itself, measured on a sample of the steps: two clock reads a call
// would cost more than the calls.
#pragma once

#include <chrono>
#include <cstdint>

namespace trainyard::train {

/// Seconds in each phase, on the steps that were timed.
struct PhaseSeconds {
  double data = 0, model = 0, loss = 0, backward = 0, optimizer = 0;
  std::int64_t timed_steps = 0;
  bool timing = false;  ///< the current step is timed
};

/// Adds the duration of a scope to one phase, if the step is timed.
class Timer {
 public:
  Timer(PhaseSeconds& all, double PhaseSeconds::*phase) : seconds_(all.timing ? &(all.*phase) : nullptr) {
    if (seconds_ != nullptr) start_ = std::chrono::steady_clock::now();
  }
  ~Timer() {
    if (seconds_ != nullptr)
      *seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  double* seconds_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace trainyard::train
