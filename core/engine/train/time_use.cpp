#include "core/engine/train/time_use.hpp"

#include <algorithm>

namespace trainyard::train {
namespace {

/// Returns the sampled seconds in the loop's own calls of a plugin.
double in_calls(const config::SlotConfig& slot, const PhaseSeconds& sampled) {
  if (slot.slot == "data.train") return sampled.data;
  if (slot.slot == "model") return sampled.model;
  if (slot.slot == "loss") return sampled.loss;
  if (slot.slot == "optimizer") return sampled.optimizer;
  return 0.0;
}

}  // namespace

TimeUse time_use(Run& run) {
  const PhaseSeconds& sampled = run.loop().seconds();
  TimeUse use{.plugins = std::vector<TimeUse::Plugin>(run.plugins().size()), .phases = {}};
  if (sampled.timed_steps == 0) return use;
  const double scale = static_cast<double>(run.clock().step) / static_cast<double>(sampled.timed_steps);
  double hooks = 0.0;
  auto of_plugin = use.plugins.begin();
  for (const ActivePlugin& plugin : run.plugins()) {
    of_plugin->seconds = in_calls(plugin.slot(), sampled) * scale;
    for (std::size_t event = 0; event < event_count; ++event) {
      const double seconds = plugin.subscriber().sampled_seconds[event] * scale;
      if (seconds <= 0.0) continue;
      of_plugin->events.emplace_back(name(static_cast<Event>(event)), seconds);
      of_plugin->seconds += seconds;
      hooks += seconds;
    }
    ++of_plugin;
  }
  use.phases = {{"data", sampled.data * scale},           {"forward", sampled.model * scale},
                {"loss", sampled.loss * scale},           {"backward", sampled.backward * scale},
                {"optimizer", sampled.optimizer * scale}, {"hooks", hooks}};
  double known = 0.0;
  for (const auto& [phase, spent] : use.phases) known += spent;
  use.phases.emplace_back("other", std::max(0.0, run.loop().seconds_trained() - known));
  return use;
}

}  // namespace trainyard::train
