// report.json: why a run ended that did not end by itself, whichever way it went down. One writer serves an
// exception, a call that never returned, a fatal signal and exit(), so all of them leave the same object:
//
//   cause       "error" | "signal" | "hang" | "exit"
//   error       the message of an exception, also of one that nobody caught, else null
//   signal      "SIGSEGV", ..., else null; "address" that was touched; "stack_overflow"
//   sender      the process that sent the signal from outside, which no plugin is to blame for; else null
//   plugin, slot, kind, digest   whose code it was; null: the host's own
//   event, step, hook            the last event, the step, whether it was in a hook of the event
//   hooks       the plugins of that event, in the order of their hooks
//   events      the last 100 events, the newest last
//   stack       addresses of the thread that failed, the innermost first, with module and offset for addr2line
//   thread, pid, time, config    "loop" or the thread's name; seconds since 1970; SHA-256 of config.toml
//   own_thread  whether the plugin began that thread by itself, as its stack shows, and not by host().thread
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
/// them. One a process at a time; made, used and destroyed on the loop thread. To blame is the plugin whose call
/// the thread that failed is in; on a thread that the host does not know, the one whose code began it; else the
/// one whose call the loop is in, which has libraries compute on threads of theirs.
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

  /// Of a call of exit(), by the calling thread. False where no run has a report.
  static bool report_exit(int status);
  /// Of a signal that ends the process at once, while the loop is where it is. Safe in a signal handler.
  static void report_ending(int signal);
  /// The plugin whose code began the calling thread, as its stack shows; empty: none's.
  static std::string whose_thread();

 private:
  struct Files;
  std::unique_ptr<Files> files_;
};

}  // namespace trainyard::report
