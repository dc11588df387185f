// trainyard ctl RUN status | set | swap | pause | resume | checkpoint | eval | stop: what a user tells a run
// that is going.
#pragma once

#include <chrono>
#include <ostream>
#include <string>

#include "core/rundir/protocol.hpp"

namespace trainyard::cli {

struct CtlOptions {
  std::string run;  ///< its directory, or its name below runs/
  control::Request request;
  std::chrono::milliseconds timeout{60'000};
  bool json = false;        ///< the result as it came
  bool prometheus = false;  ///< a status as Prometheus' text
};

/// The exit code: 0 done, 1 where no run answers, 2 where the run says no. The reason stands in `errors`.
int ctl(const CtlOptions& options, std::ostream& out, std::ostream& errors);

/// A status for a person, several lines; the last lines of the run's journal below it.
std::string status_text(const control::Status& status, const std::vector<std::string>& journal);

}  // namespace trainyard::cli
