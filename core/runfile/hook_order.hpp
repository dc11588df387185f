// Collects the hooks of a run in their order, from the manifests of its plugins.
#pragma once

#include <vector>

#include "core/plugins/order.hpp"
#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::config {

/// Returns a plugin with the hooks of its manifest, which have cadence and order from the run file.
events::Participant participant_of(const SlotConfig& slot, const ManifestData& manifest);

/// Returns every plugin of the run with its hooks, in config order.
std::vector<events::Participant> participants(const RunConfig& config, const plugins::Registry& registry);

}  // namespace trainyard::config
