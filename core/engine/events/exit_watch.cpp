#include "core/engine/events/exit_watch.hpp"

#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <trainyard/error.hpp>

#include "core/engine/events/fault_report.hpp"
#include "core/engine/events/where.hpp"

namespace trainyard::report {
namespace {

std::atomic<pid_t> watched{0};  // the process; a child that a plugin forked may end as it likes

void exit_called(int status, void*) {
  if (watched != ::getpid()) return;
  std::fflush(nullptr);
  if (!FaultReport::report_exit(status)) {
    const events::Where call = events::where(events::call_frame);
    std::fprintf(
        stderr, "trainyard: %s%s%s%s called exit(%d): throw an error instead, which says what is wrong\n",
        call.slot != nullptr ? "[" : "", call.slot != nullptr ? call.slot : "a plugin, or a library,",
        call.slot != nullptr ? "] " : "", call.slot != nullptr ? call.plugin : "", status);
  }
  ::_exit(static_cast<int>(ExitCode::plugin));
}

}  // namespace

ExitWatch::ExitWatch() {
  [[maybe_unused]] static const int registered =
      ::on_exit(exit_called, nullptr);  // once: it cannot be unregistered
  watched = ::getpid();
}

void ExitWatch::stepped() {
  static std::uint64_t steps = 0;
  if (std::has_single_bit(++steps)) ::on_exit(exit_called, nullptr);
}

ExitWatch::~ExitWatch() {
  watched = 0;
}

}  // namespace trainyard::report
