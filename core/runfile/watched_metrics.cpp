#include "core/runfile/watched_metrics.hpp"

#include <algorithm>

#include "core/runfile/at_path.hpp"
#include "core/runfile/suggest.hpp"

namespace trainyard::config {
namespace {

void collect(const std::vector<OptionSpec>& specs, const Table& options, const std::string& watcher,
             const Origin& at, std::vector<WatchedMetric>& found) {
  for (const OptionSpec& spec : specs) {
    const Value* value = options.find(spec.name);
    if (value == nullptr) continue;
    const std::string key = watcher + "." + spec.name;
    const Origin& place = value->origin.line > 0 ? value->origin : at;
    if (const auto* metric = value->get_if<std::string>();
        spec.metric && metric != nullptr && !metric->empty())
      found.push_back({key, watcher, *metric, place});
    if (const auto* fields = value->get_if<Table>()) collect(spec.fields, *fields, key, place, found);
  }
}

}  // namespace

std::vector<WatchedMetric> watched_metrics(const RunConfig& config, const plugins::Registry& registry) {
  std::vector<WatchedMetric> found;
  for (const SlotConfig& slot : config.slots) {
    const std::vector<const plugins::PluginFile*> plugin = registry.find(slot.kind, slot.type);
    if (plugin.size() == 1)
      collect(plugin.front()->manifest.options, slot.options, slot.slot, slot.origin, found);
  }
  return found;
}

void check_watched_metrics(const RunConfig& config, const Table& resolved, const plugins::Registry& registry,
                           Findings& findings) {
  std::vector<std::string> produced = {"val/loss"};
  for (const SlotConfig& slot : config.of_kind("metric"))
    if (!slot.id.empty()) produced.push_back("val/" + slot.id);
  for (const auto& [key, watcher, metric, at] : watched_metrics(config, registry))
    if (std::ranges::find(produced, metric) == produced.end())
      findings.error("E203", at, key + ": nothing produces \"" + metric + "\"",
                     suggestion(metric, produced, "produced"));
    else if (value_at(resolved, "data.val") == nullptr)
      findings.error("E203", at, key + ": \"" + metric + "\" needs a [data.val]",
                     "add [data.val], or drop " + watcher);
    else if (value_at(resolved, "trainer.eval_interval") == nullptr)
      findings.error("E203", at, watcher + " needs evaluations while the training goes on",
                     "set trainer.eval_interval, e.g. \"1ep\"");
}

}  // namespace trainyard::config
