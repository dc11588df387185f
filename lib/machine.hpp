// Names this machine, and the folder that programs on it share: what was measured on a processor is kept there for later runs.
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>

namespace trainyard::lib {

/// Returns the model name of the processor, or "unknown processor" where the kernel does not say.
inline std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

/// Returns $XDG_CACHE_HOME/trainyard/NAME, or that below ~/.cache. Makes no folder.
inline std::string cache_folder(const std::string& name) {
  const auto set = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return std::string(value != nullptr ? value : "");
  };
  const std::string base = set("XDG_CACHE_HOME");
  return (base.empty() ? set("HOME") + "/.cache" : base) + "/trainyard/" + name;
}

}  // namespace trainyard::lib
