// report.json: why a run failed, whichever way it ended. One writer serves an exception, a call that never
// returned, a fatal signal and exit(), so that all of them leave the same object:
//
//   cause       "error" | "signal" | "hang" | "exit"
// error the message of an exception, even an uncaught one, else null
//   signal      "SIGSEGV", ..., else null; "address" that was touched; "stack_overflow"
// sender the process that sent the signal from outside (then no plugin is to blame); else null
// plugin, slot, kind, digest the plugin whose code failed; null: the host's own code. With plugin alone: a
//             file of several plugins, one of which began a thread by itself
// event, step, hook the last event, the step, and whether a hook of that event was running
// hooks the plugins of that event, in the order of their hooks
//   events      the last 100 events, the newest last
// stack addresses on the failed thread, innermost first, with module and offset for addr2line
//   thread, pid, time, config    "loop" or the thread's name; seconds since 1970; SHA-256 of config.toml
// own_thread true if the plugin began the thread by itself, as its stack shows, not by host().thread
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
  std::string digest;  ///< SHA-256 of its code, by which the quarantine knows it
  std::string file;
};

/// While it lives, SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT leave a report before they end the process.
/// One per process at a time; made, used and destroyed on the loop thread. It blames the plugin whose call
/// the failed thread is in; on a thread unknown to the host, the plugin whose code began it; else the one
/// whose call the loop is in, as that makes libraries compute on threads of theirs.
class FaultReport {
 public:
  /// Opens the file in the run's directory beforehand; it gets the name report.json only with a report. An
  /// earlier attempt's becomes report-previous.json. Throws DataError.
  FaultReport(const std::string& directory, std::string_view resolved_toml);
  ~FaultReport();
  FaultReport(const FaultReport&) = delete;
  FaultReport& operator=(const FaultReport&) = delete;

  /// Called at the start of a run and after a swap.
  void set_plugins(std::vector<ReportedPlugin> plugins);

  /// Reports an error that ends the run. The first report of a run stays: later errors follow from it.
  void write(const std::exception& error);

  /// Reports the call that the loop thread is in and will not leave, with its stack; ends the process with
  /// exit code 3. Any thread.
  [[noreturn]] void end_hung();

  /// Reports a call of exit() by the calling thread. Returns false if no run has a report.
  static bool report_exit(int status);
  /// Reports a signal that ends the process at once, where the loop is. Safe in a signal handler.
  static void report_ending(int signal);
  /// Returns the plugin whose code began the calling thread, as its stack shows; empty: none.
  static std::string whose_thread();

 private:
  struct Files;
  std::unique_ptr<Files> files_;
};

}  // namespace trainyard::report
