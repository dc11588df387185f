// What plugins say in a verb that trains nothing.
#pragma once

#include <cstdio>
#include <string>

#include "core/engine/train/active_plugin.hpp"

namespace trainyard::train {

inline void to_stderr(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
}

/// Warnings and errors go to standard error.
inline HostOutputs to_terminal() {
  HostOutputs outputs;
  outputs.log = [](LogLevel level, const std::string& text) {
    if (level >= LogLevel::warning) to_stderr(text);
  };
  return outputs;
}

}  // namespace trainyard::train
