// Reads the runs that the verbs report and runs compare are given.
#pragma once

#include <string>
#include <vector>

#include "core/report/run_data.hpp"

namespace trainyard::cli {

/// Reads runs, given by folder or name, each once. Throws Error where one holds no run, or no metrics.
std::vector<report::RunData> read_runs(const std::vector<std::string>& given);

}  // namespace trainyard::cli
