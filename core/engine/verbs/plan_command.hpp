// The part of `trainyard plan` that needs data and model: steps, batch arithmetic, memory.
#pragma once

#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

int plan_command(const config::RunConfig& config, const plugins::Registry& registry);

}  // namespace trainyard::train
