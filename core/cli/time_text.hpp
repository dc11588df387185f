// Where the time of a run goes, for a terminal: by plugin, and by phase.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/cli/run_state.hpp"

namespace trainyard::cli {

/// A header, and a row for each slot of a run that is going: its plugin, its seconds and their share of the time.
std::vector<std::vector<std::string>> slot_rows(const control::Status& status);

/// The same of a run that is going, else of its result.json.
std::vector<std::vector<std::string>> plugin_rows(const RunState& run);

/// "time  backward 45.0%  forward 31.2%  ...", the largest first; none where no step was timed yet.
std::vector<std::string> time_lines(const std::vector<std::pair<std::string, double>>& time);
std::vector<std::string> time_lines(const RunState& run);

}  // namespace trainyard::cli
