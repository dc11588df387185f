// A stack for the handler of fatal signals, so that it also runs when a thread has used up its own.
#pragma once

#include <csignal>

namespace trainyard::report {

/// While it lives, the calling thread handles signals on a separate stack. Every thread that runs a plugin's
/// code has one. Without memory for it the thread goes on with the stack that it has.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

  /// Returns true if `address`, which the calling thread could not access, lies just beyond the end of its
  /// stack; false on a thread without a SignalStack. Safe in a signal handler.
  static bool overflowed(const void* address);

 private:
  void* memory_ = nullptr;
  stack_t before_{};
};

}  // namespace trainyard::report
