// `trainyard train`: a run with its directory, sinks, signals and result.
#pragma once

#include "core/engine/verbs/train_options.hpp"
#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

/// Returns the exit code. Throws Error only before the run directory exists; afterwards errors go into
/// result.json and onto standard error.
int train_command(const config::RunConfig& config, const plugins::Registry& registry,
                  const TrainOptions& options);

}  // namespace trainyard::train
