#include "core/runfile/plugins_together.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "core/runfile/at_path.hpp"

namespace trainyard::config {
namespace {

/// The first plugin of a kind that provides a feature, or does not; null where there is none such. One that was
/// not found is reported already.
const ManifestData* find_provider(const std::vector<PluginInUse>& plugins, std::string_view kind,
                                  std::string_view feature, bool provides) {
  for (const PluginInUse& used : plugins) {
    const ManifestData& manifest = used.plugin->manifest;
    const bool does = std::ranges::find(manifest.provides, feature) != manifest.provides.end();
    if (manifest.kind == kind && does == provides) return &manifest;
  }
  return nullptr;
}

/// Hooks on events of a micro-batch that the run's executor does not fire: they would never be called.
void check_heard(const std::vector<PluginInUse>& plugins, Findings& findings) {
  const auto executor = std::find_if(plugins.begin(), plugins.end(), [](const PluginInUse& used) {
    return used.plugin->manifest.kind == "executor";
  });
  if (executor == plugins.end()) return;
  const ManifestData& runs = executor->plugin->manifest;
  const auto fires = [&](Event event) {
    return !of_micro(event) || std::ranges::find(runs.fires, event) != runs.fires.end();
  };
  for (const PluginInUse& used : plugins)
    for (const HookSpec& hook : used.plugin->manifest.hooks)
      if (!fires(hook.event))
        findings.error("E322", used.at,
                       used.slot + ": the " + used.plugin->manifest.kind + " \"" +
                           used.plugin->manifest.name + "\" has a hook on " + std::string(name(hook.event)) +
                           ", which the executor \"" + runs.name + "\" does not fire",
                       "drop the plugin, or take an executor that fires it");
}

/// Values of evaluations, by which the best checkpoint was found, are then not those of the model's weights.
void check_best_weights(const std::vector<PluginInUse>& plugins, const Table& resolved, Findings& findings) {
  const auto* wanted = at_path<bool>(resolved, "trainer.restore_best");
  if (wanted == nullptr || !*wanted) return;
  for (const PluginInUse& used : plugins)
    for (const HookSpec& hook : used.plugin->manifest.hooks)
      if (hook.event == Event::eval_start && hook.writes.contains(Region::model))
        findings.error(
            "E323", used.at,
            used.slot + ": the " + used.plugin->manifest.kind + " \"" + used.plugin->manifest.name +
                "\" puts other weights in place for evaluations, and trainer.restore_best takes back those "
                "of the model alone",
            "drop one of the two");
}

/// Without what it is for: "distributed where mode = dist" holds with that word of an option only. Empty where it does
/// not hold.
std::string_view holding(std::string_view need, const PluginInUse& used, const Table& resolved) {
  constexpr std::string_view where = " where ", is = " = ";
  const std::size_t end = need.find(where);
  if (end == std::string_view::npos) return need;
  const std::string_view condition = need.substr(end + where.size());
  const std::size_t middle = condition.find(is);
  if (middle == std::string_view::npos) return {};
  const auto* value =
      at_path<std::string>(resolved, used.slot + "." + std::string(condition.substr(0, middle)));
  return value != nullptr && *value == condition.substr(middle + is.size()) ? need.substr(0, end)
                                                                            : std::string_view();
}

}  // namespace

void check_together(const std::vector<PluginInUse>& plugins, const Table& resolved, bool steps, int ranks,
                    Findings& findings) {
  check_heard(plugins, findings);
  check_best_weights(plugins, resolved, findings);
  const auto* device = at_path<std::string>(resolved, "run.device");
  const auto* precision = at_path<std::string>(resolved, "trainer.precision");
  const ManifestData* bare_model = find_provider(plugins, "model", "graph", false);
  const ManifestData* free_data = find_provider(plugins, "dataset", "free_rows", true);
  std::multimap<std::string_view, const PluginInUse*> by_name;
  for (const PluginInUse& used : plugins) by_name.emplace(used.plugin->manifest.name, &used);
  for (const PluginInUse& used : plugins) {
    const ManifestData& manifest = used.plugin->manifest;
    const std::string who = used.slot + ": the " + manifest.kind + " \"" + manifest.name + "\"";
    for (const std::string& text : manifest.needs) {
      const std::string_view need = holding(text, used, resolved);
      const std::string as_it_is = need == text ? "" : text.substr(need.size());
      if (need == "cuda" && device != nullptr && *device == "cpu")
        findings.error("E303", used.at, who + " needs a GPU, and run.device is \"cpu\"",
                       "set run.device = \"cuda\", or take another plugin");
      if (need == "distributed" && ranks == 1)
        findings.error("E303", used.at,
                       who + as_it_is + " needs a run of several ranks, and this is one of a single",
                       "start it by torchrun or with --ranks N, or take another plugin or option");
      if (need == "one rank" && ranks > 1)
        findings.error("E303", used.at,
                       who + as_it_is + " trains on one rank, and this run has " + std::to_string(ranks),
                       "start it without --ranks, or take another plugin or option");
      if (need == "steps" && !steps)
        findings.error(
            "E303", used.at,
            who + " needs a run whose length can be counted in steps, and trainer.max_duration is a time",
            "give max_duration in ep, ba, sp or tok and bound the time with "
            "trainer.max_wall_time, or take the schedule \"constant\"");
      if (need == "fp32" && precision != nullptr && *precision == "fp64")
        findings.error("E303", used.at,
                       who + as_it_is + " works in single precision, and trainer.precision is \"fp64\"",
                       "set trainer.precision = \"fp32\", or take another plugin");
      if (need == "graph" && bare_model != nullptr)
        findings.error("E303", used.at,
                       who + " needs the graph of the model, and \"" + bare_model->name + "\" has none",
                       "take a model that is a graph, or drop this plugin");
      if (need == "rows" && free_data != nullptr)
        findings.error("E303", used.at,
                       who + " needs data of one row a sample, and the dataset \"" + free_data->name +
                           "\" gives free rows",
                       "drop this plugin, or take other data");
    }
    for (const std::string& other : manifest.conflicts) {
      const auto [begin, end] = by_name.equal_range(other);
      const auto rival =
          std::find_if(begin, end, [&](const auto& each) { return each.second->plugin != used.plugin; });
      if (rival != end)
        findings.error("E304", used.at,
                       who + " cannot be in a run with the " + rival->second->plugin->manifest.kind + " \"" +
                           other + "\" of " + rival->second->slot,
                       "drop one of the two");
    }
  }
}

}  // namespace trainyard::config
