// trainyard ctl RUN status | set | swap | add | remove | pause | resume | checkpoint | eval | stop: controls
// a run that is going.
#pragma once

#include <chrono>
#include <ostream>
#include <string>

#include "core/rundir/protocol.hpp"

namespace trainyard::cli {

struct CtlOptions {
  std::string run;  ///< its directory, or its name below runs/
  control::Request request;
  std::string kind;  ///< of `add` and `remove`: the list of this kind of plugin
  std::chrono::milliseconds timeout{60'000};
  bool json = false;        ///< prints the result as JSON
  bool prometheus = false;  ///< prints a status in Prometheus' text format
};

/// Returns the exit code: 0 done, 1 if no run answers, 2 if the run refuses. The reason goes to `errors`.
int ctl(const CtlOptions& options, std::ostream& out, std::ostream& errors);

/// Formats a status for people, in several lines, with the last lines of the run's journal below it.
std::string status_text(const control::Status& status, const std::vector<std::string>& journal);

}  // namespace trainyard::cli
