// Notices a plugin that does not return: a thread looks at the loop's call frame now and then, so that the
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

  /// The reactions to a call that does not return, on the watchdog's thread.
  struct Answers {
    /// Gets one line, once for each call that takes longer than the deadline.
    std::function<void(const std::string& message)> overdue;
    /// Returns how long a call may take altogether, asked once it is overdue; by default there is no limit.
    std::function<Seconds()> patience = [] { return Seconds::max(); };
    std::function<void()> hung = [] {};
  };

  /// Watches the calling thread. Only time in which this process runs counts: after a stop (^Z) no call has
  /// taken long.
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
