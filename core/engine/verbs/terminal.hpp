// Output to a terminal of verbs that train nothing, and of their plugins.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "core/engine/train/active_plugin.hpp"

namespace trainyard::train {

inline void to_stderr(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
}

/// Returns outputs that send warnings and errors to standard error, but those that `said` has.
inline HostOutputs to_terminal(std::string said = {}) {
  HostOutputs outputs;
  outputs.log = [said = std::move(said)](LogLevel level, const std::string& text) {
    if (level >= LogLevel::warning && said.find(text) == std::string::npos) to_stderr(text);
  };
  return outputs;
}

/// Draws the progress of a tool on one line, if standard error is a terminal.
inline void show_progress(const std::string& tool, std::int64_t done, std::int64_t total) {
  if (total <= 0 || isatty(STDERR_FILENO) != 1) return;
  constexpr int width = 30;
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const int filled = static_cast<int>(share * width);
  std::fprintf(stderr, "\r%s [%s%s] %3d %%%s", tool.c_str(),
               std::string(static_cast<std::size_t>(filled), '#').c_str(),
               std::string(static_cast<std::size_t>(width - filled), '.').c_str(),
               static_cast<int>(100 * share), done >= total ? "\n" : "");
}

}  // namespace trainyard::train
