// Files that options of a plugin name.
#pragma once

#include <string>
#include <vector>

#include <trainyard/manifest.hpp>
#include "core/config/findings.hpp"

namespace trainyard::config {

/// Makes them absolute: each starts at the folder of the file that it was written in.
void anchor_files(const std::vector<OptionSpec>& specs, Table& options);

/// Reports those that are not there, or cannot be read. `where`: the table, "data.train".
void files_exist(const std::vector<OptionSpec>& specs, const Table& options, const std::string& where,
                 Findings& findings);

}  // namespace trainyard::config
