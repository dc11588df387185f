// The text that a user reads when a run is over.
#pragma once

#include <string>

#include "core/rundir/run_directory.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::report {

/// Returns a few lines: result, place and next steps.
std::string summary(const config::RunConfig& config, const RunResult& result, const std::string& directory);

}  // namespace trainyard::report
