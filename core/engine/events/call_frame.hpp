// The plugin that a thread is in, which an exception, a fatal signal and the watchdog name.
#pragma once

#include <atomic>
#include <cstdint>

namespace trainyard::events {

class Bus;
struct Subscriber;

/// The plugin call that a thread is in: its running hook, whatever is called within it, else the innermost
/// call. The thread writes it with plain stores; its signal handlers and other threads may read it at any
/// time.
struct CallFrame {
  // For a call that the loop makes itself:
  std::atomic<const char*> slot{nullptr};    ///< place in the run file; null: none
  std::atomic<const char*> plugin{nullptr};  ///< its name
  /// Changes with every such call that is not within another: the same number later means the same call.
  std::atomic<std::uint64_t> sequence{0};
  /// The subscriber whose hook runs; null: none does. Event and step are the bus's newest.
  std::atomic<const Subscriber*> hook{nullptr};
  /// On the thread that fires events: the bus that was made last and still exists.
  std::atomic<const Bus*> bus{nullptr};
};

/// In the static block of thread-local storage: a read takes one instruction, and no allocation, which a
/// signal handler must not make.
extern __attribute__((tls_model("initial-exec"))) constinit thread_local CallFrame call_frame;

/// Names the plugin that the calling thread is in, for the length of a scope. The texts must outlive it.
class CallScope {
 public:
  CallScope(const char* slot, const char* plugin) noexcept
      : slot_(call_frame.slot.load(std::memory_order_relaxed)),
        plugin_(call_frame.plugin.load(std::memory_order_relaxed)) {
    call_frame.plugin.store(plugin, std::memory_order_relaxed);
    call_frame.slot.store(slot, std::memory_order_relaxed);
    if (slot_ == nullptr)
      call_frame.sequence.store(call_frame.sequence.load(std::memory_order_relaxed) + 1,
                                std::memory_order_relaxed);
  }
  ~CallScope() {
    call_frame.slot.store(slot_, std::memory_order_relaxed);
    call_frame.plugin.store(plugin_, std::memory_order_relaxed);
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  const char* slot_;
  const char* plugin_;
};

/// The scope of a thread that calls hooks in turn: it costs one store a hook, and one at the end.
class HooksScope {
 public:
  HooksScope() noexcept = default;
  void enter(const Subscriber* who) noexcept { frame_.hook.store(who, std::memory_order_relaxed); }
  ~HooksScope() { frame_.hook.store(nullptr, std::memory_order_relaxed); }
  HooksScope(const HooksScope&) = delete;
  HooksScope& operator=(const HooksScope&) = delete;

 private:
  CallFrame& frame_ = call_frame;
};

}  // namespace trainyard::events
