// Paths that a run file names.
#pragma once

#include <string>

#include <trainyard/value.hpp>

namespace trainyard::config {

/// `path` relative to the folder of the file that it was written in.
std::string absolute_path(const std::string& path, const Origin& written);

/// What a path is that can be opened but is no file: "a folder", "a pipe", "a socket" or "a device", of which
/// the last three may keep a reader waiting for ever. Null: a file, or nothing.
const char* no_file(const std::string& path);

}  // namespace trainyard::config
