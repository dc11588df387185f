// trainyard report RUN...: writes runs as a page.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "core/report/run_data.hpp"

namespace trainyard::cli {

/// Reads runs, given by folder or name, each once. Throws Error where one holds no run, or no metrics.
std::vector<report::RunData> read_runs(const std::vector<std::string>& given);

/// Returns the exit code. Throws Error.
int report_runs(const std::vector<std::string>& given, const std::string& file, std::ostream& out);

}  // namespace trainyard::cli
