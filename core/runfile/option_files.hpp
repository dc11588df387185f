// Files that options of a plugin name.
#pragma once

#include <string>
#include <vector>

#include <trainyard/manifest_data.hpp>
#include "core/runfile/findings.hpp"

namespace trainyard::config {

/// Makes them absolute: each starts at the folder of the file that it was written in.
void anchor_files(const std::vector<OptionSpec>& specs, Table& options);

/// Reports those that are not there, cannot be read or are neither file nor folder. `where`: the table,
/// "data.train".
void files_exist(const std::vector<OptionSpec>& specs, const Table& options, const std::string& where,
                 Findings& findings);

}  // namespace trainyard::config
