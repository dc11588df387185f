// The hooks of a plugin as a run has them: its manifest, with what the run file says of cadence and order.
#pragma once

#include <vector>

#include <trainyard/manifest.hpp>

#include "core/config/run_config.hpp"

namespace trainyard::events {

inline std::vector<HookSpec> hooks_of(const config::SlotConfig& slot, const ManifestData& manifest) {
  std::vector<HookSpec> hooks = manifest.hooks;
  for (HookSpec& hook : hooks) {
    // Not for hooks without a cadence, such as those that close a bracket.
    if (!slot.every.empty() && !hook.cadence.every.empty()) hook.cadence.every = slot.every;
    if (slot.priority) hook.priority = *slot.priority;
    hook.before.insert(hook.before.end(), slot.before.begin(), slot.before.end());
    hook.after.insert(hook.after.end(), slot.after.begin(), slot.after.end());
  }
  return hooks;
}

}  // namespace trainyard::events
