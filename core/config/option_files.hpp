// Files that options of a plugin name.
#pragma once

#include <string>
#include <vector>

#include <trainyard/manifest.hpp>
#include "core/config/findings.hpp"

namespace trainyard::config {

/// What a path is that can be opened but is no file: "a folder", "a pipe", "a socket" or "a device", of which
/// the last three may keep a reader waiting for ever. Null: a file, or nothing.
const char* no_file(const std::string& path);

/// Makes them absolute: each starts at the folder of the file that it was written in.
void anchor_files(const std::vector<OptionSpec>& specs, Table& options);

/// Reports those that are not there, cannot be read or are neither file nor folder. `where`: the table,
/// "data.train".
void files_exist(const std::vector<OptionSpec>& specs, const Table& options, const std::string& where,
                 Findings& findings);

}  // namespace trainyard::config
