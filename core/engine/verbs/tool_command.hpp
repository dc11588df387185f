// `trainyard NAME`: a plugin of kind tool, and what it works on.
#pragma once

#include <string>

#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

/// Runs the one tool of the run file over weights (a safetensors file, a checkpoint, a run's directory; "initial":
/// those that the model begins with; empty: the directory of this run), and prints its report. Returns the report's exit code, or `resumable`
/// after a signal.
int tool_command(const config::RunConfig& config, const plugins::Registry& registry,
                 const std::string& weights, bool json);

}  // namespace trainyard::train
