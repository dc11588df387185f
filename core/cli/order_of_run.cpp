#include "core/cli/order_of_run.hpp"

#include <algorithm>
#include <vector>

#include "core/plugins/order.hpp"
#include "core/runfile/hook_order.hpp"

namespace trainyard::cli {

std::string order_of_run(const config::RunConfig& config, const plugins::Registry& registry) {
  const std::vector<events::Participant> participants = config::participants(config, registry);
  const events::Order order = events::make_order(participants);
  std::string text;
  for (std::size_t e = 0; e < event_count; ++e) {
    if (order.places[e].empty()) continue;
    text += std::string(event_names[e]) + "\n";
    for (const events::Place& place : order.places[e]) {
      const events::Participant& who = participants[place.participant];
      const HookSpec& hook = who.hooks[place.hook];
      std::string line = "  " + who.id;
      line.resize(std::max<std::size_t>(line.size() + 1, 24), ' ');
      line += std::string(name(hook.phase));
      if (!hook.writes.empty()) line += ", writes " + events::text(hook.writes);
      if (!hook.cadence.every.empty()) line += ", every " + hook.cadence.every;
      if (!place.reason.empty()) line += "   <- " + place.reason;
      text += line + "\n";
    }
  }
  if (text.empty()) text = "no plugin of this run subscribes to an event\n";
  return text + "order " + order.digest(participants) + "\n";
}

}  // namespace trainyard::cli
