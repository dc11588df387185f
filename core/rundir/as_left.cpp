#include "core/rundir/as_left.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>

#include <trainyard/error.hpp>

#include "core/plugins/kinds.hpp"
#include "core/rundir/folder.hpp"
#include "core/rundir/run_directory.hpp"
#include "core/runfile/at_path.hpp"
#include "core/runfile/changes.hpp"
#include "core/runfile/live_config.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/rank_place.hpp"
#include "core/runfile/schema.hpp"
#include "lib/read_file.hpp"

namespace trainyard::control {
namespace {

namespace fs = std::filesystem;

/// Returns the run file that lies beside weights, or in the manifest of their checkpoint; nothing where no run, or a run
/// without swaps, wrote them.
std::optional<SwappedFile> beside(const fs::path& weights) {
  const std::string folder = (fs::is_directory(weights) ? weights : weights.parent_path()).string();
  if (const auto live = lib::read_file(folder + "/" + live_name);
      live && fs::exists(folder + "/config.toml") && weights.filename() == checkpoint::weights_name)
    return SwappedFile{resolved_table(folder, report::RunDirectory::read_config(folder)),
                       resolved_table(folder, *live), folder};
  if (!fs::exists(folder + "/" + checkpoint::manifest_name)) return std::nullopt;
  const std::vector<checkpoint::StateEntry> states = checkpoint::read_manifest(folder).states;
  const auto run = std::ranges::find(states, "run", &checkpoint::StateEntry::owner);
  if (run == states.end()) return std::nullopt;
  const auto table = [&](const char* name) {
    if (const auto text = run->scalars.find(name); text != run->scalars.end())
      return resolved_table(folder, std::get<std::string>(text->second));
    throw DataError(folder + ": its manifest has no '" + name +
                    "' of the run, as an older release wrote it; copy " + checkpoint::weights_name +
                    " elsewhere to use the weights as a run file says");
  };
  return SwappedFile{table("file"), table("config"), folder};
}

/// Returns the keys that swaps had changed when the weights were written, with their values then.
std::vector<config::Difference> swapped(const SwappedFile& file) {
  Table begun = file.given;
  begun.erase("swap");
  return config::diff(begun, file.live);
}

/// Returns the entry of a list of plugins that has the id of another, or null.
const Value* with_id_of(const Value& entry, const Array& list) {
  const auto id = [](const Value& each) { return *config::at_path<std::string>(each.as<Table>(), "id"); };
  const auto found = std::ranges::find(list, id(entry), id);
  return found == list.end() ? nullptr : &*found;
}

/// Merges a list of which swaps have added or removed entries with the list of a later file.
Array merged(const Array& given, const Array& live, const Array& now) {
  Array all;
  for (const Value& entry : now) {
    const Value *const before = with_id_of(entry, given), *const there = with_id_of(entry, live);
    if (before != nullptr && there == nullptr) continue;  // a swap has removed it
    const bool changed = before == nullptr || config::toml_text(*before) != config::toml_text(entry);
    all.push_back(changed ? entry : *there);
  }
  for (const Value& entry : live)
    if (!with_id_of(entry, given) && !with_id_of(entry, now)) all.push_back(entry);
  return all;
}

/// Merges the lists of plugins that come and go while a run trains.
void merge_lists(const SwappedFile& file, const Table& now, Table& root) {
  for (const config::Section& section : config::schema()) {
    if (!section.list || !plugins::can_be_left_out(section.kind)) continue;
    const auto list = [&](const Table& of) { return config::at_path<Array>(of, section.path); };
    const Array *const given = list(file.given), *const live = list(file.live);
    if (given == nullptr || live == nullptr || list(now) == nullptr) continue;
    const auto lacks = [](const Array& all, const Array& other) {
      return std::ranges::any_of(all, [&](const Value& each) { return !with_id_of(each, other); });
    };
    if (lacks(*given, *live) || lacks(*live, *given))
      const_cast<Array&>(*list(root)) = merged(*given, *live, *list(now));
  }
}

}  // namespace

Table resolved_table(const std::string& source, const std::string& text) {
  config::Document document = config::load_resolved(source, text);
  if (document.findings.failed()) throw ConfigError(document.findings.text());
  return std::move(document.root);
}

config::RunConfig as_left(const SwappedFile& file, const config::RunConfig& config,
                          const plugins::Registry& registry, bool trains) {
  if (swapped(file).empty()) return config;
  config::Document document;
  document.root = config::with_changes(file.live, config::diff(file.given, config.resolved), config.resolved);
  document.root.erase("swap");
  merge_lists(file, config.resolved, document.root);
  document.file = file.source;
  document.ranks = static_cast<int>(config::ranks_of(config.resolved));  // others may have saved the run
  document.trains = trains;
  config::Resolution resolution = config::live_config(std::move(document), registry);
  if (!resolution.config)
    throw ConfigError("the run as its swaps have left it cannot go on with this host:\n" +
                      resolution.findings.text());
  resolution.config->swaps = config.swaps;
  return std::move(*resolution.config);
}

config::RunConfig as_left(const std::string& path, const config::RunConfig& config,
                          const plugins::Registry& registry,
                          const std::function<void(const std::string&)>& warn) {
  const std::optional<SwappedFile> file = fs::exists(path) ? beside(path) : std::nullopt;
  if (!file) return config;
  const fs::path home = fs::weakly_canonical(config.run.output_dir);
  const fs::path within = fs::weakly_canonical(path).lexically_relative(home);
  if (!within.empty() && *within.begin() != "..") return as_left(*file, config, registry, false);
  std::string lacking;
  const std::vector<config::Difference> by_swaps = swapped(*file);
  for (const config::Difference& each : config::diff(config.resolved, file->live))
    if (std::ranges::find(by_swaps, each.key, &config::Difference::key) != by_swaps.end())
      lacking += (lacking.empty() ? "" : ", ") + each.key + " = " + (each.b.empty() ? "nothing" : each.b);
  if (!lacking.empty())
    warn(path + " lies outside of " + config.run.output_dir +
         " and is taken as the run file says; in its run swaps had set " + lacking +
         "; say so by --set, or name it where that run lies");
  return config;
}

}  // namespace trainyard::control
