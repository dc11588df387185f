// What a run's folder tells of its training: configuration, curves, journal, result.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <trainyard/value.hpp>

#include "core/rundir/protocol.hpp"
#include "core/rundir/run_directory.hpp"

namespace trainyard::report {

struct Point {
  std::int64_t step = 0;
  double value = 0.0;  ///< perhaps NaN or infinite
};
using Curve = std::vector<Point>;  ///< by rising step

struct RunData {  // NOLINT(bugprone-exception-escape): what nlohmann's json moves does not throw
  std::string path, name;
  std::string state;  ///< in a word, for a reader: "completed"
  Table config;
  std::map<std::string, Curve> curves;  ///< of each metric; a run has at least one
  std::vector<JournalEntry> journal;
  control::Json result;     ///< result.json; null while it goes, or where it was killed
  std::int64_t unread = 0;  ///< whole lines of its metrics that are no record
  std::int64_t steps = 0;   ///< of the last record
  std::string config_of(std::string_view table, std::string_view key) const;  ///< text; empty where absent
};

/// Of a run that is going, too: a line that is not written to its end counts for nothing yet, and where the run
/// went back to a checkpoint, what came after it is gone. Throws DataError where it has no metrics, or cannot be
/// read.
RunData read_run(const std::string& path);

}  // namespace trainyard::report
