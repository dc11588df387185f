#include "core/events/watchdog.hpp"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "core/events/bus.hpp"

namespace trainyard::events {
namespace {

/// The call that a thread is in; the number tells whether it is still the same one.
struct Seen {
  std::uint64_t sequence = 0;
  bool inside = false;
  std::string text;  ///< "[hooks[0]] ema at before_step, step 7"
};

Seen look(const CallFrame& frame, bool with_text) {
  Seen seen;
  seen.sequence = frame.sequence.load(std::memory_order_acquire);
  const char* slot = frame.slot.load();
  const char* plugin = frame.plugin.load();
  seen.inside = slot != nullptr && plugin != nullptr;
  if (!seen.inside || !with_text) return seen;
  const std::uint8_t hook = frame.event.load();
  const Bus* bus = frame.bus.load();
  seen.text = std::string("[") + slot + "] " + plugin;
  if (hook < event_count)
    seen.text += " at " + std::string(event_names[hook]);
  else if (bus != nullptr && bus->trail().size() > 0)
    seen.text += " after " + std::string(name(bus->trail().back(0).event));
  seen.text += ", step " + std::to_string(frame.step.load());
  return seen;
}

std::string text(Watchdog::Seconds seconds) {
  char number[32];
  std::snprintf(number, sizeof number, "%g s", seconds.count());
  return number;
}

}  // namespace

Watchdog::Watchdog(Seconds deadline, std::function<void(const std::string&)> overdue)
    : frame_(call_frame), deadline_(deadline), overdue_(std::move(overdue)) {
  // Signals that end a run in order are the loop thread's.
  sigset_t all, before;
  sigfillset(&all);
  for (const int fatal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, fatal);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::jthread([this](std::stop_token stop) { watch(std::move(stop)); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "watchdog");
}

Watchdog::~Watchdog() {
  thread_.request_stop();  // wakes it; joined when the member goes
}

void Watchdog::watch(std::stop_token stop) {
  using Clock = std::chrono::steady_clock;
  // A call is noticed within a quarter of the deadline after it is overdue.
  const auto pause = std::clamp<Clock::duration>(std::chrono::duration_cast<Clock::duration>(deadline_ / 4),
                                                 std::chrono::milliseconds(1), std::chrono::seconds(1));
  std::uint64_t sequence = 0;
  auto since = Clock::now();
  bool told = false;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    wake_.wait_for(lock, stop, pause, [] { return false; });
    const Seen seen = look(frame_, false);
    const auto now = Clock::now();
    if (!seen.inside || seen.sequence != sequence) {
      sequence = seen.sequence;
      since = now;
      told = false;
      continue;
    }
    if (told || now - since < deadline_) continue;
    const Seen named = look(frame_, true);
    if (!named.inside || named.sequence != sequence) continue;  // it returned just now
    told = true;
    overdue_(named.text + ": the call has not returned for more than " + text(deadline_) +
             " (guard.deadline)");
  }
}

}  // namespace trainyard::events
