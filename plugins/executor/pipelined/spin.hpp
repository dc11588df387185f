// How threads that work in lock step wait for one another.
#pragma once

#include <thread>

namespace pipelined {

/// Waits a little for `ready`, awake: what neighbours in the pipeline wait for is mostly a few microseconds away, and
/// to sleep and be woken takes some fifty. Whoever called goes on to sleep where it is not ready.
template <class Ready>
void spin(const Ready& ready) {
  static const bool alone = std::thread::hardware_concurrency() < 2;
  constexpr int turns = 4000;  // of some 15 to 40 ns
  for (int i = 0; i < turns && !alone && !ready(); ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

}  // namespace pipelined
