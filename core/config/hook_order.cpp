#include "core/config/hook_order.hpp"

#include "core/events/hooks_of.hpp"

namespace trainyard::config {

std::vector<events::Participant> participants(const RunConfig& config, const plugins::Registry& registry) {
  std::vector<events::Participant> all;
  for (const SlotConfig* slot : config.slots()) {
    const auto files = registry.find(slot->kind, slot->type);
    if (files.size() == 1)
      all.push_back({slot->id, slot->type, events::hooks_of(*slot, files.front()->manifest)});
  }
  return all;
}

}  // namespace trainyard::config
