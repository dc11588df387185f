#include "core/engine/events/signal_stack.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdint>

namespace trainyard::report {
namespace {

constexpr std::size_t page = 4096, size = std::size_t{128} * 1024;

/// Lowest address of the thread's stack; 0 without a SignalStack. Static TLS, for signal handlers.
__attribute__((tls_model("initial-exec"))) constinit thread_local std::uintptr_t stack_end = 0;

std::uintptr_t end_of_stack() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  void* low = nullptr;
  std::size_t length = 0;
  const bool known = pthread_attr_getstack(&attributes, &low, &length) == 0;
  pthread_attr_destroy(&attributes);
  return known ? reinterpret_cast<std::uintptr_t>(low) : 0;
}

}  // namespace

SignalStack::SignalStack() {
  // Its lowest page stays closed: a handler that uses up this stack as well must not write elsewhere.
  memory_ = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory_ == MAP_FAILED) {
    memory_ = nullptr;
    return;
  }
  mprotect(memory_, page, PROT_NONE);
  stack_t stack{};
  stack.ss_sp = static_cast<char*>(memory_) + page;
  stack.ss_size = size - page;
  sigaltstack(&stack, &before_);
  stack_end = end_of_stack();
}

SignalStack::~SignalStack() {
  if (memory_ == nullptr) return;
  stack_end = 0;
  sigaltstack(&before_, nullptr);
  munmap(memory_, size);
}

bool SignalStack::overflowed(const void* address) {
  // Below the end lie the guard pages: 1 of a thread, 256 of the main thread.
  constexpr std::uintptr_t below = 257 * page, above = 16 * page;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return stack_end != 0 && at + below >= stack_end && at < stack_end + above;
}

}  // namespace trainyard::report
