// `trainyard eval`: the metrics of saved weights.
#pragma once

#include <string>

#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

/// Loads `weights` (safetensors; names, shapes and dtypes must be the model's) and evaluates every split but
/// training.
int evaluate_command(const config::RunConfig& config, const plugins::Registry& registry,
                     const std::string& weights, bool json);

}  // namespace trainyard::train
