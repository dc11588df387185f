// trainyard runs: the runs below a folder and what became of them.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "core/cli/run_state.hpp"

namespace trainyard::cli {

/// Runs below `folder`, by path. A run is not searched for others, links are not followed.
std::vector<RunState> find_runs(const std::string& folder);

/// A table, or JSON. The exit code: 0; 1 where the folder cannot be read.
int runs(const std::string& folder, bool json, std::ostream& out, std::ostream& errors);

}  // namespace trainyard::cli
