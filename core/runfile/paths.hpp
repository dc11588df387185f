// Handles paths that a run file names.
#pragma once

#include <string>

#include <trainyard/value.hpp>

namespace trainyard::config {

/// Returns `path` as absolute, relative to the folder of the file that it was written in.
std::string absolute_path(const std::string& path, const Origin& written);

/// Names what a path is if it exists but is no regular file: "a folder", "a pipe", "a socket" or "a device"
/// (the last three may block a reader for ever). Null: a file, or nothing.
const char* no_file(const std::string& path);

}  // namespace trainyard::config
