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
};

}  // namespace trainyard::report
