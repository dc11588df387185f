// The part of `trainyard plan` that needs data and model: steps, batch arithmetic, memory.
#pragma once

#include "core/train/engine.hpp"

namespace trainyard::train {

int plan_command(const config::RunConfig& config, const plugins::Registry& registry);

}  // namespace trainyard::train
