// Which plugin a thread is in: what an exception, a fatal signal and the watchdog name.
#pragma once

#include <atomic>
#include <cstdint>

#include <trainyard/event.hpp>

namespace trainyard::events {

class Bus;

/// The plugin call that a thread is in, the innermost where calls stand within each other. The thread writes
/// it with plain stores; its signal handlers and other threads may read it at any time.
struct CallFrame {
  static constexpr std::uint8_t no_event = 0xff;

  std::atomic<const char*> slot{nullptr};     ///< place in the run file; null: no plugin's code runs
  std::atomic<const char*> plugin{nullptr};   ///< its name
  std::atomic<std::int64_t> step{0};          ///< 0: before training, or not known on this thread
  std::atomic<std::uint8_t> event{no_event};  ///< of a hook; no_event: a call that the loop makes itself
  /// Moves with every call that is not within another: the same number later is the same call still.
  std::atomic<std::uint64_t> sequence{0};
  /// Of the thread that fires events: the one that was made last and lives.
  std::atomic<const Bus*> bus{nullptr};

};

/// In the static block of thread-local storage: reading it takes one instruction, and no allocation that a
/// signal handler must not make.
extern __attribute__((tls_model("initial-exec"))) constinit thread_local CallFrame call_frame;

/// Names the plugins whose hooks a thread calls one after another, for the length of a scope: what CallScope
/// does, with as few stores a call as will do.
class HooksScope {
 public:
  HooksScope(Event event, std::int64_t step) noexcept
      : slot_(call_frame.slot.load(std::memory_order_relaxed)),
        plugin_(call_frame.plugin.load(std::memory_order_relaxed)),
        step_(call_frame.step.load(std::memory_order_relaxed)),
        sequence_(call_frame.sequence.load(std::memory_order_relaxed)) {
    call_frame.event.store(static_cast<std::uint8_t>(event), std::memory_order_relaxed);
    call_frame.step.store(step, std::memory_order_relaxed);
  }
  void enter(const char* slot, const char* plugin) noexcept {
    call_frame.slot.store(slot, std::memory_order_relaxed);
    call_frame.plugin.store(plugin, std::memory_order_relaxed);
    call_frame.sequence.store(++sequence_, std::memory_order_relaxed);
  }
  ~HooksScope() {
    call_frame.slot.store(slot_, std::memory_order_relaxed);
    if (slot_ == nullptr) [[likely]]
      return;  // of no plugin: the rest says nothing
    call_frame.plugin.store(plugin_, std::memory_order_relaxed);
    call_frame.step.store(step_, std::memory_order_relaxed);
    call_frame.event.store(CallFrame::no_event, std::memory_order_relaxed);
  }
  HooksScope(const HooksScope&) = delete;
  HooksScope& operator=(const HooksScope&) = delete;

 private:
  const char* slot_;
  const char* plugin_;
  std::int64_t step_;
  std::uint64_t sequence_;
};

/// Names the plugin that the calling thread is in for the length of a scope. The texts outlive it.
class CallScope {
 public:
  /// `step` 0: that of the call around it.
  CallScope(const char* slot, const char* plugin, std::int64_t step) noexcept
      : slot_(call_frame.slot.load(std::memory_order_relaxed)),
        plugin_(call_frame.plugin.load(std::memory_order_relaxed)),
        step_(call_frame.step.load(std::memory_order_relaxed)),
        event_(call_frame.event.load(std::memory_order_relaxed)) {
    if (step > 0) call_frame.step.store(step, std::memory_order_relaxed);
    call_frame.event.store(CallFrame::no_event, std::memory_order_relaxed);
    call_frame.plugin.store(plugin, std::memory_order_relaxed);
    call_frame.slot.store(slot, std::memory_order_relaxed);
    if (slot_ == nullptr)
      call_frame.sequence.store(call_frame.sequence.load(std::memory_order_relaxed) + 1,
                                std::memory_order_relaxed);
  }
  ~CallScope() {
    call_frame.slot.store(slot_, std::memory_order_relaxed);
    call_frame.plugin.store(plugin_, std::memory_order_relaxed);
    call_frame.step.store(step_, std::memory_order_relaxed);
    call_frame.event.store(event_, std::memory_order_relaxed);
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  const char* slot_;
  const char* plugin_;
  std::int64_t step_;
  std::uint8_t event_;
};

}  // namespace trainyard::events
