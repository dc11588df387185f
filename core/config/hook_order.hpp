// The hooks of a run in their order, from the manifests of its plugins.
#pragma once

#include <vector>

#include "core/config/run_config.hpp"
#include "core/events/order.hpp"
#include "core/plugins/registry.hpp"

namespace trainyard::config {

/// Every plugin of the run with its hooks, in config order.
std::vector<events::Participant> participants(const RunConfig& config, const plugins::Registry& registry);

}  // namespace trainyard::config
