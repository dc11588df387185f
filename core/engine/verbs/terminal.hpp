// What plugins say in a verb that trains nothing.
#pragma once

#include <cstdio>

#include "core/engine/train/active_plugin.hpp"

namespace trainyard::train {

/// Warnings and errors go to standard error.
inline HostOutputs to_terminal() {
  HostOutputs outputs;
  outputs.log = [](LogLevel level, const std::string& text) {
    if (level >= LogLevel::warning) std::fprintf(stderr, "%s\n", text.c_str());
  };
  return outputs;
}

}  // namespace trainyard::train
