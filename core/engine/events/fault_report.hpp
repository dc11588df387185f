// report.json: why a run ended that did not end by itself, whichever way it went down. One writer serves an
// exception, a call that never returned and a fatal signal, so all of them leave the same object:
//
//   cause       "error" | "signal" | "hang"
//   error       the message of an exception, else null
//   signal      "SIGSEGV", ..., else null; "address" that was touched; "stack_overflow"
//   plugin, slot, kind, digest   whose code it was; null: the host's own
//   event, step, hook            the last event, the step, whether it was in a hook of the event
//   hooks       the plugins of that event, in the order of their hooks
//   events      the last 100 events, the newest last
//   stack       addresses of the thread that failed, the innermost first, with module and offset for addr2line
//   thread, pid, time, config    "loop" or the thread's name; seconds since 1970; SHA-256 of config.toml
//   suggestion  what to do
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::report {

/// A plugin of the run, for the report.
struct ReportedPlugin {
  std::string slot, plugin, kind;
  std::string digest;  ///< SHA-256 of its code, which the quarantine goes by
};

/// While it lives, SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT leave a report before the process ends by
/// them. One a process at a time; made, used and destroyed on the loop thread, whose plugin calls are blamed
/// where the thread that failed is in none of its own.
class FaultReport {
 public:
  /// Opens the file in the run's directory, for the worst case; it appears as report.json only with a report.
  /// One of an earlier attempt becomes report-previous.json. Throws DataError.
  FaultReport(const std::string& directory, std::string_view resolved_toml);
  ~FaultReport();
  FaultReport(const FaultReport&) = delete;
  FaultReport& operator=(const FaultReport&) = delete;

  /// At the start of a run and after a swap.
  void set_plugins(std::vector<ReportedPlugin> plugins);

  /// Of an error that ends the run. The first report of a run stays: what follows follows from it.
  void write(const std::exception& error);

  /// Of the call that the loop thread is in and will not leave, with its stack; ends the process with exit
  /// code 3. Any thread.
  [[noreturn]] void end_hung();

 private:
  struct Files;
  std::unique_ptr<Files> files_;
};

}  // namespace trainyard::report
