// A stack for the handler of fatal signals, so that it runs also where a thread has used up its own.
#pragma once

#include <csignal>

namespace trainyard::report {

/// For its lifetime the calling thread handles signals on a stack apart. Every thread that runs a plugin's
/// code has one. Without memory for it the thread goes on with what it has.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

  /// Whether an address that the calling thread could not use lies just beyond the end of its stack; false on
  /// a thread without a SignalStack. Safe in a signal handler.
  static bool overflowed(const void* address);

 private:
  void* memory_ = nullptr;
  stack_t before_{};
};

}  // namespace trainyard::report
