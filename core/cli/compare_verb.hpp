// trainyard runs compare RUN...: shows how runs ended, and in which keys they differ.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace trainyard::cli {

/// Returns the exit code. Throws Error.
int compare_runs(const std::vector<std::string>& given, bool json, std::ostream& out);

}  // namespace trainyard::cli
