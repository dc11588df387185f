// Looks for programs as a shell does.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>

namespace trainyard::lib {

inline bool is_program(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

/// Returns the path of a program in a list of folders with ':' between them, the first that has it; by default
/// in the PATH.
inline std::optional<std::string> on_path(const std::string& name, std::string folders = {}) {
  const char* const variable = std::getenv("PATH");
  if (folders.empty() && variable != nullptr) folders = variable;
  std::stringstream list(folders);
  for (std::string folder; std::getline(list, folder, ':');) {
    const std::string path = folder + "/" + name;
    if (!folder.empty() && is_program(path)) return path;
  }
  return std::nullopt;
}

}  // namespace trainyard::lib
