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

  /// Watches the calling thread. `overdue` gets one line, once for each call that takes longer than
  /// `deadline`, on the watchdog's thread.
  Watchdog(Seconds deadline, std::function<void(const std::string& message)> overdue);
  ~Watchdog();

 private:
  void watch(const std::stop_token& stop);

  const CallFrame& frame_;
  const Seconds deadline_;
  const std::function<void(const std::string&)> overdue_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

}  // namespace trainyard::events
