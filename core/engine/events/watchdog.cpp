#include "core/engine/events/watchdog.hpp"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "core/engine/events/where.hpp"
#include "lib/printed.hpp"

namespace trainyard::events {
namespace {

/// Returns a text such as "[hooks[0]] ema at before_step, step 7".
std::string describe(const CallFrame& frame, const Where& call) {
  std::string text = std::string("[") + call.slot + "] " + call.plugin;
  if (const auto newest = newest_event(frame))
    text += (call.hook ? " at " : " after ") + std::string(name(newest->event)) + ", step " +
            std::to_string(newest->step);
  return text;
}

std::string text(Watchdog::Seconds seconds) {
  return lib::printed("%g s", seconds.count());
}

}  // namespace

Watchdog::Watchdog(Seconds deadline, Answers answers)
    : frame_(call_frame), deadline_(deadline), answers_(std::move(answers)) {
  // The loop thread takes the signals that end a run in order.
  sigset_t all, before;
  sigfillset(&all);
  for (const int fatal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, fatal);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "watchdog");
}

Watchdog::~Watchdog() {
  thread_.request_stop();  // wakes it; joined when the member goes
}

void Watchdog::watch(const std::stop_token& stop) {
  using Clock = std::chrono::steady_clock;
  // An overdue call is noticed within a quarter of the deadline.
  const auto pause = std::chrono::duration_cast<Clock::duration>(
      std::clamp<Seconds>(deadline_ / 4, Seconds(1e-3), Seconds(1)));
  Where watched;
  auto last = Clock::now();
  Seconds waited{0};
  bool told = false;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    wake_.wait_for(lock, stop, pause, [] { return false; });
    const Where now_in = where(frame_);
    const auto now = Clock::now();
    const Seconds passed = now - std::exchange(last, now);
    if (now_in.slot == nullptr || now_in != watched) {
      watched = now_in;
      waited = {};
      told = false;
      continue;
    }
    waited += std::min<Seconds>(passed, 2 * pause);
    if (waited < deadline_) continue;
    const std::string call = describe(frame_, now_in);
    if (where(frame_) != watched) continue;  // it returned just now
    if (waited >= answers_.patience()) answers_.hung();
    if (std::exchange(told, true)) continue;
    answers_.overdue(call + ": the call has not returned for more than " + text(deadline_) +
                     " (guard.deadline)");
  }
}

}  // namespace trainyard::events
