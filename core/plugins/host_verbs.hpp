// The verbs of the host, whose names tools cannot have.
#pragma once

#include <string_view>

namespace trainyard::plugins {

inline constexpr std::string_view host_verbs[] = {
    "train", "resume", "eval",   "validate", "plan",    "config", "plugins",    "ckpt",  "model", "schedule",
    "rules", "bench",  "doctor", "ctl",      "monitor", "runs",   "completion", "tools", "study", "help"};

}  // namespace trainyard::plugins
