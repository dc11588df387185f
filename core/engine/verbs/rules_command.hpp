// `trainyard rules check`: the rules of a run file over what was recorded of a run.
#pragma once

#include <string>

#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

/// Exit code where nothing fires, but a rule could not look at all that it wants.
inline constexpr int rules_not_checked = 7;

/// Shows every record of a trial to the rules, in order, and prints what fires and what was not looked at,
/// for which reason. Returns the exit code: numeric where anything fires. Nothing is done about it: actions
/// belong to a run that is going.
int rules_command(const config::RunConfig& config, const plugins::Registry& registry,
                  const std::string& trial, bool json);

}  // namespace trainyard::train
