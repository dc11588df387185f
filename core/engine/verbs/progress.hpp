// How far a tool has come, drawn on one line where standard error is a terminal.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

namespace trainyard::train {

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
