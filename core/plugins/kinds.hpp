// The kinds that this host runs, without their headers, which bring LibTorch.
#pragma once

#include <string_view>

#include <trainyard/plugin.hpp>

namespace trainyard::plugins {

inline constexpr Kind known_kinds[] = {
    {"dataset", 1},      {"sampler", 1},  {"model", 1},    {"loss", 1}, {"metric", 1},
    {"optimizer", 1},    {"schedule", 1}, {"dropout", 1},  {"hook", 1}, {"sink", 1},
    {"checkpointer", 1}, {"rule", 1},     {"recorder", 1},
};

/// Whether a run can do without a plugin of the kind.
constexpr bool can_be_left_out(std::string_view kind) {
  return kind == "hook" || kind == "rule" || kind == "sink" || kind == "metric";
}

}  // namespace trainyard::plugins
