// Makes signals end a training in order.
#pragma once

#include <atomic>
#include <csignal>
#include <cstddef>
#include <iterator>

#include "core/engine/events/fault_report.hpp"

namespace trainyard::train {

/// While it lives, these signals end the run at a step boundary, with a checkpoint; a second one ends the process at
/// once, with a report of where the run was. System calls that they interrupt go on. They are handled on the thread's
/// SignalStack: kernels of oneDNN (3.10, LibTorch 2.11's LSTM) lay their stack pointer into a block of the heap, whose
/// neighbours a handler there would overwrite.
class SignalScope {
 public:
  SignalScope() {
    caught_ = 0;
    struct sigaction action {};
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    action.sa_handler = [](int number) {
      if (caught_.exchange(number) <= 0) return;
      report::FaultReport::report_ending(number);
      signal(number, SIG_DFL);
      raise(number);  // delivered when the handler returns
    };
    for (std::size_t i = 0; i < std::size(numbers); ++i) sigaction(numbers[i], &action, &old_[i]);
  }
  ~SignalScope() {
    for (std::size_t i = 0; i < std::size(numbers); ++i) sigaction(numbers[i], &old_[i], nullptr);
  }
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  /// Returns the number of the signal that came; 0: none; -1: ask() was called.
  static const std::atomic<int>& caught() { return caught_; }
  /// Asks for such an end without a signal; caught() is -1 until withdraw().
  static void ask() {
    int none = 0;
    caught_.compare_exchange_strong(none, -1);
  }
  static void withdraw() {
    int asked = -1;
    caught_.compare_exchange_strong(asked, 0);
  }

 private:
  static constexpr int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
  static inline std::atomic<int> caught_{0};
  struct sigaction old_[std::size(numbers)] = {};
};

}  // namespace trainyard::train
