// Files that plugins write in the run's folder.
#pragma once

#include "core/plugins/registry.hpp"
#include "core/runfile/findings.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::config {

/// Reports options that name a file to write (OptionRef::output) where the name is no plain one, is one of
/// the run's own, or is given twice. `folder`: of the run; what lies there already, a link, is followed.
void check_output_files(const RunConfig& config, const std::string& folder, const plugins::Registry& registry,
                        Findings& findings);

}  // namespace trainyard::config
