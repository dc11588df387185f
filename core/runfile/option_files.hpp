// Handles files that options of a plugin name.
#pragma once

#include <string>
#include <vector>

#include <trainyard/manifest_data.hpp>
#include "core/runfile/findings.hpp"

namespace trainyard::config {

/// Makes paths of files absolute: each is relative to the folder of the file that it was written in.
void anchor_files(const std::vector<OptionSpec>& specs, Table& options);

/// Reports files that do not exist, cannot be read or are neither file nor folder. `where` is the table,
/// "data.train".
void files_exist(const std::vector<OptionSpec>& specs, const Table& options, const std::string& where,
                 Findings& findings);

}  // namespace trainyard::config
