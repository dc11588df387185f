// Checks the names of files that plugins write in the run's folder.
#pragma once

#include "core/plugins/registry.hpp"
#include "core/runfile/findings.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::config {

/// Reports options that name a file to write (OptionRef::output) if the name is not a plain one, is one of
/// the run's own files, or is given twice. `folder` is the run's; links in it are followed.
void check_output_files(const RunConfig& config, const std::string& folder, const plugins::Registry& registry,
                        Findings& findings);

}  // namespace trainyard::config
