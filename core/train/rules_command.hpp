// `trainyard rules check`: the rules of a run file over what was recorded of a run.
#pragma once

#include <string>

#include "core/train/engine.hpp"

namespace trainyard::train {

/// Shows every record of a trial to the rules, in order, and prints what fires. Returns the exit code:
/// numeric where any does. Nothing is done about it: actions belong to a run that is going.
int rules_command(const config::RunConfig& config, const plugins::Registry& registry,
                  const std::string& trial, bool json);

}  // namespace trainyard::train
