// A plugin that calls exit() would end the process as if all were done.
#pragma once

namespace trainyard::report {

/// While it lives, exit() ends the process with exit code 3 and a message that says whose call it was; within a
/// FaultReport it leaves a report. _exit() goes past it. One a process at a time.
class ExitWatch {
 public:
  ExitWatch();
  ~ExitWatch();
  ExitWatch(const ExitWatch&) = delete;
  ExitWatch& operator=(const ExitWatch&) = delete;

  /// Told after each step: exit() first takes down what was made last, such as LibTorch's and a plugin's static
  /// objects, under a loop that trains on; the watch goes ahead of them again after 1, 2, 4, 8... steps.
  static void stepped();
};

}  // namespace trainyard::report
