#include "core/rundir/quarantine.hpp"

#include <filesystem>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

#include "core/plugins/kinds.hpp"
#include "core/rundir/run_directory.hpp"
#include "core/runfile/watched_metrics.hpp"

namespace trainyard::control {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Quarantined, plugin, slot, kind, digest, event, step, reason, time)

namespace {

constexpr const char* file_name = "/quarantine.json";

const Quarantined* find(const config::SlotConfig& slot, const plugins::Registry& registry,
                        const std::vector<Quarantined>& quarantined) {
  for (const plugins::PluginFile* file : registry.find(slot.kind, slot.type))
    for (const Quarantined& each : quarantined)
      if (each.digest == file->digest && file->is(each.kind, each.plugin)) return &each;
  return nullptr;
}

}  // namespace

std::vector<Quarantined> read_quarantine(const std::string& directory) {
  const std::string path = directory + file_name;
  if (!std::filesystem::exists(path)) return {};
  try {
    return nlohmann::json::parse(std::ifstream(path)).get<std::vector<Quarantined>>();
  } catch (const nlohmann::json::exception& error) {
    throw DataError(path + " is no list of quarantined plugins: " + error.what() + "; mend or remove it");
  }
}

void quarantine(const std::string& directory, Quarantined plugin) {
  std::vector<Quarantined> all = read_quarantine(directory);
  all.push_back(std::move(plugin));
  report::write_atomically(
      directory + file_name,
      nlohmann::json(all).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

std::vector<Quarantined> leave_out(config::RunConfig& config, const plugins::Registry& registry,
                                   const std::vector<Quarantined>& quarantined) {
  std::vector<Quarantined> left;
  if (quarantined.empty()) return left;
  for (const config::SlotConfig& slot : config.slots) {
    const Quarantined* found = find(slot, registry, quarantined);
    if (found == nullptr) continue;
    const std::string why =
        "[" + slot.slot + "] " + slot.type + " is quarantined (" + found->reason + "), and ";
    const std::string mend = ": mend the plugin, or take another one";
    if (!plugins::can_be_left_out(slot.kind))
      throw PluginError(why + "the run cannot do without " + slot.slot + mend);
    for (const config::WatchedMetric& watched : config::watched_metrics(config, registry))
      if (slot.kind == "metric" && watched.metric == "val/" + slot.id)
        throw PluginError(why + watched.watcher + " watches " + watched.metric + mend + ", or drop " +
                          watched.watcher);
    left.push_back(*found);
    left.back().slot = slot.slot;
  }
  std::erase_if(config.slots,
                [&](const config::SlotConfig& slot) { return find(slot, registry, quarantined) != nullptr; });
  return left;
}

}  // namespace trainyard::control
