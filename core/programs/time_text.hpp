// Shows the time of a run by plugin and by phase, for a terminal.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/cli/run_state.hpp"

namespace trainyard::cli {

/// Returns a header, and a row for each slot of a run that is going: its plugin, its seconds and their share.
std::vector<std::vector<std::string>> slot_rows(const control::Status& status);

/// The same for a run that is going; otherwise from its result.json.
std::vector<std::vector<std::string>> plugin_rows(const RunState& run);

/// Returns "time  backward 45.0%  forward 31.2%  ...", largest first; empty while no step is timed yet.
std::vector<std::string> time_lines(const std::vector<std::pair<std::string, double>>& time);
std::vector<std::string> time_lines(const RunState& run);

}  // namespace trainyard::cli
