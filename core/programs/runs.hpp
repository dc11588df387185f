// trainyard runs: lists the runs below a folder and their state.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "core/cli/run_state.hpp"

namespace trainyard::cli {

/// Returns the runs below `folder`, sorted by path. Runs are not searched for others; links are not followed.
std::vector<RunState> find_runs(const std::string& folder);

/// Prints a table, or JSON. Returns the exit code: 0; 1 where the folder cannot be read.
int runs(const std::string& folder, bool json, std::ostream& out, std::ostream& errors);

}  // namespace trainyard::cli
