// Catches exit() in a plugin, which would end the process as if all were done.
#pragma once

namespace trainyard::report {

/// While it lives, exit() ends the process with exit code 3 and a message that names the caller; within a
/// FaultReport it leaves a report. _exit() is not caught. One per process at a time.
class ExitWatch {
 public:
  ExitWatch();
  ~ExitWatch();
  ExitWatch(const ExitWatch&) = delete;
  ExitWatch& operator=(const ExitWatch&) = delete;

  /// Called after each step. exit() first destroys what was made last, such as static objects of LibTorch and
  /// plugins, while the loop still trains; so the watch is put ahead of them again after 1, 2, 4... steps.
  static void stepped();
};

}  // namespace trainyard::report
