#include "core/engine/train/time_use.hpp"

#include <algorithm>

namespace trainyard::train {
namespace {

/// The slots of plugins that the loop calls itself, with the phase that their calls are.
constexpr std::pair<std::string_view, double PhaseSeconds::*> called[] = {
    {"data.train", &PhaseSeconds::data},
    {"model", &PhaseSeconds::model},
    {"loss", &PhaseSeconds::loss},
    {"optimizer", &PhaseSeconds::optimizer}};

}  // namespace

TimeUse time_use(Run& run) {
  const PhaseSeconds& sampled = run.loop().seconds();
  TimeUse use{.plugins = std::vector<TimeUse::Plugin>(run.plugins().size()), .phases = {}};
  if (sampled.timed_steps == 0) return use;
  double hooks = 0.0;
  for (const ActivePlugin& plugin : run.plugins())
    for (const double seconds : plugin.subscriber().sampled_seconds) hooks += seconds;
  double known = sampled.data + sampled.model + sampled.loss + sampled.backward + sampled.optimizer + hooks;
  const double steps = static_cast<double>(run.clock().step) / static_cast<double>(sampled.timed_steps);
  // The timed steps may be the slow ones.
  const double scale = std::min(steps, run.loop().seconds_trained() / known);
  auto of_plugin = use.plugins.begin();
  for (const ActivePlugin& plugin : run.plugins()) {
    for (const auto& [slot, phase] : called)
      if (plugin.slot().slot == slot) of_plugin->seconds = sampled.*phase * scale;
    for (std::size_t event = 0; event < event_count; ++event) {
      const double seconds = plugin.subscriber().sampled_seconds[event] * scale;
      if (seconds <= 0.0) continue;
      of_plugin->events.emplace_back(name(static_cast<Event>(event)), seconds);
      of_plugin->seconds += seconds;
    }
    ++of_plugin;
  }
  use.phases = {{"data", sampled.data * scale},           {"forward", sampled.model * scale},
                {"loss", sampled.loss * scale},           {"backward", sampled.backward * scale},
                {"optimizer", sampled.optimizer * scale}, {"hooks", hooks * scale}};
  use.phases.emplace_back("other", std::max(0.0, run.loop().seconds_trained() - known * scale));
  return use;
}

}  // namespace trainyard::train
