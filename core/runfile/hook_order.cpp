#include "core/runfile/hook_order.hpp"

namespace trainyard::config {

events::Participant participant_of(const SlotConfig& slot, const ManifestData& manifest) {
  events::Participant participant{slot.id, slot.type, manifest.hooks, slot.kind == "transform"};
  for (HookSpec& hook : participant.hooks) {
    // Hooks without a cadence, such as those that close a bracket, keep none.
    if (!slot.hook.every.empty() && !hook.cadence.every.empty()) hook.cadence.every = slot.hook.every;
    if (slot.hook.priority) hook.priority = *slot.hook.priority;
    hook.before.insert(hook.before.end(), slot.hook.before.begin(), slot.hook.before.end());
    hook.after.insert(hook.after.end(), slot.hook.after.begin(), slot.hook.after.end());
  }
  return participant;
}

std::vector<events::Participant> participants(const RunConfig& config, const plugins::Registry& registry) {
  std::vector<events::Participant> all;
  for (const SlotConfig& slot : config.slots) {
    const auto files = registry.find(slot.kind, slot.type);
    if (files.size() == 1) all.push_back(participant_of(slot, files.front()->manifest));
  }
  return all;
}

}  // namespace trainyard::config
