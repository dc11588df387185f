// Notices that a plugin does not return: a thread looks at the loop's call frame now and then, so that the
// loop itself reads no clock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "core/engine/events/call_frame.hpp"

namespace trainyard::events {

class Watchdog {
 public:
  using Seconds = std::chrono::duration<double>;

  /// What is done about a call that does not return, on the watchdog's thread.
  struct Answers {
    /// Gets one line, once for each call that takes longer than the deadline.
    std::function<void(const std::string& message)> overdue;
    /// Asked from then on how long a call may take altogether; by default for ever.
    std::function<Seconds()> patience = [] { return Seconds::max(); };
    std::function<void()> hung = [] {};
  };

  /// Watches the calling thread. Only the time counts in which this process runs: one that was stopped (^Z) and
  /// goes on has no call that took long.
  Watchdog(Seconds deadline, Answers answers);
  ~Watchdog();

 private:
  void watch(const std::stop_token& stop);

  const CallFrame& frame_;
  const Seconds deadline_;
  const Answers answers_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

}  // namespace trainyard::events
