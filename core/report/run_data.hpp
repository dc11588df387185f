// Reads the training of a run from its folder: configuration, curves, journal, result.
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
  double value = 0.0;  ///< may be NaN or infinite
};
using Curve = std::vector<Point>;  ///< by rising step

struct RunData {  // NOLINT(bugprone-exception-escape): what nlohmann's json moves does not throw
  std::string path, name;
  std::string state;  ///< one word for people: "completed"
  Table config;
  std::map<std::string, Curve> curves;  ///< by metric; a run has at least one
  std::vector<JournalEntry> journal;
  control::Json result;  ///< result.json; null while the run goes, or if it was killed
  std::map<std::string, std::string>
      tables;               ///< what plugins left in report/*.tsv: a line a row, tabs between cells
  std::int64_t unread = 0;  ///< complete lines of the metrics file that are no record
  std::int64_t steps = 0;   ///< step of the last record
  std::string config_of(std::string_view table, std::string_view key) const;  ///< text; empty where absent
};

/// Reads a run, which may still be going: an unfinished last line of its metrics is ignored, and where the
/// run went back to a checkpoint, records after that are dropped. Throws DataError if the run has no metrics,
/// or cannot be read.
RunData read_run(const std::string& path);

}  // namespace trainyard::report
