// The hooks of a run in their order, from the manifests of its plugins.
#pragma once

#include <vector>

#include "core/plugins/order.hpp"
#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::config {

/// The hooks of a plugin as a run has them: its manifest, with what the run file says of cadence and order.
std::vector<HookSpec> hooks_of(const SlotConfig& slot, const ManifestData& manifest);

/// Every plugin of the run with its hooks, in config order.
std::vector<events::Participant> participants(const RunConfig& config, const plugins::Registry& registry);

}  // namespace trainyard::config
