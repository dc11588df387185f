#include "core/train/beginning.hpp"

#include <filesystem>
#include <utility>

#include <trainyard/context.hpp>
#include <trainyard/error.hpp>

#include "core/checkpoint/folder.hpp"
#include "core/config/changes.hpp"
#include "core/config/load.hpp"
#include "core/config/resolve.hpp"
#include "core/control/quarantine.hpp"

namespace trainyard::train {
namespace {

namespace fs = std::filesystem;
using report::RunDirectory;

/// A resolved run file as the tree that it was printed from.
Table tree(const std::string& name, const std::string& text) {
  config::Document document = config::load_resolved(name, text);
  if (document.findings.failed()) throw ConfigError(document.findings.text());
  return std::move(document.root);
}

/// The run file in a checkpoint: "file", as it was given, or "config", as swaps had left it by then.
Table tree_in(const checkpoint::Loaded& loaded, const char* which) {
  const State* const run = loaded.find("run");
  if (run == nullptr) throw DataError(loaded.path + " holds no state of a run");
  return tree(loaded.path, StateReader(*run).text(which));
}

/// The new file against the one that the run was begun with.
std::vector<std::string> checked_changes(const std::vector<config::Difference>& differences,
                                         std::int64_t step) {
  config::Findings findings;
  std::vector<std::string> lines = config::check_changes(differences, step, findings);
  if (findings.failed()) throw ConfigError(findings.text());
  return lines;
}

/// What swaps and commands made of the run, with what the new file changed on top.
config::RunConfig effective(const checkpoint::Loaded& loaded,
                            const std::vector<config::Difference>& differences,
                            const config::RunConfig& config, const plugins::Registry& registry) {
  const Table saved = tree_in(loaded, "config");
  if (config::diff(saved, tree_in(loaded, "file")).empty()) return config;
  config::Document document;
  document.root = config::with_changes(saved, differences, config.resolved);
  document.file = loaded.path;
  config::Resolution resolution = config::resolve(std::move(document), registry);
  if (!resolution.config)
    throw ConfigError("the run as its swaps have left it cannot go on with this host:\n" +
                      resolution.findings.text());
  return std::move(*resolution.config);
}

/// Of a run that was stopped and is resumed by hand: it is to go on.
void drop_stop(checkpoint::Loaded& loaded) {
  for (State& state : loaded.states)
    if (state.owner == "run") {
      const std::int64_t requests = StateReader(state).integer("requests");
      state.scalars["requests"] = requests & ~static_cast<std::int64_t>(Control::stop_run);
    }
}

Beginning anew(const config::RunConfig& config, const std::string& resolved_toml, bool overwrite) {
  return {RunDirectory::create(config.output_dir, resolved_toml, overwrite), config, {}, false, {}};
}

std::optional<Beginning> go_on(const config::RunConfig& config, const plugins::Registry& registry,
                               const std::string& resolved_toml) {
  const std::string& path = config.output_dir;
  const Table before = tree(path + "/config.toml", RunDirectory::read_config(path));
  const bool completed = RunDirectory::status(path) == report::Status::completed;
  const bool stopped = RunDirectory::status(path) == report::Status::stopped;
  if (completed && checked_changes(config::diff(before, config.resolved), 0).empty()) return std::nullopt;

  RunDirectory directory = RunDirectory::extend(path);
  const std::string folder = checkpoint_folder(directory);
  std::vector<std::string> notes;
  std::optional<checkpoint::Loaded> loaded =
      checkpoint::load_newest(folder, [&](const std::string& checkpoint, const std::string& why) {
        notes.push_back("passed over " + checkpoint + ": " + why);
      });
  if (!loaded && !notes.empty())
    throw DataError("none of the checkpoints in " + folder + " is whole: " + notes.front() +
                    "; --overwrite begins anew");
  if (!loaded && (completed || config.resume == "must"))
    throw ConfigError("'" + path + "' holds no checkpoint to go on from; --overwrite begins anew");
  if (!loaded || loaded->step == 0) {
    // Nothing was trained yet.
    { const RunDirectory unlocked = std::move(directory); }
    const std::vector<control::Quarantined> quarantined = control::read_quarantine(path);
    Beginning beginning = anew(config, resolved_toml, true);
    for (const control::Quarantined& each : quarantined) control::quarantine(path, each);
    return beginning;
  }
  if (stopped && config.resume == "must") drop_stop(*loaded);
  const std::vector<config::Difference> differences = config::diff(tree_in(*loaded, "file"), config.resolved);
  for (const std::string& line : checked_changes(differences, loaded->step))
    notes.push_back("changed: " + line);
  directory.set_config(resolved_toml);
  config::RunConfig now = effective(*loaded, differences, config, registry);
  return Beginning{std::move(directory), std::move(now), std::move(loaded), true, std::move(notes)};
}

/// Another run's state, in a directory of its own.
Beginning from_elsewhere(const config::RunConfig& config, const std::string& resolved_toml, bool overwrite) {
  std::vector<std::string> notes;
  const bool single = fs::exists(fs::path(config.resume) / checkpoint::manifest_name);
  std::optional<checkpoint::Loaded> loaded;
  if (single)
    loaded = checkpoint::load(config.resume);
  else
    loaded = checkpoint::load_newest((fs::path(config.resume) / "checkpoints").string(),
                                     [&](const std::string& checkpoint, const std::string& why) {
                                       notes.push_back("passed over " + checkpoint + ": " + why);
                                     });
  if (!loaded)
    throw DataError("run.resume: '" + config.resume + "' holds no checkpoint that is whole" +
                    (notes.empty() ? "" : ": " + notes.front()));
  for (const std::string& line :
       checked_changes(config::diff(tree_in(*loaded, "config"), config.resolved), loaded->step))
    notes.push_back("changed: " + line);
  Beginning beginning = anew(config, resolved_toml, overwrite);
  beginning.loaded = std::move(loaded);
  beginning.notes = std::move(notes);
  return beginning;
}

}  // namespace

std::string checkpoint_folder(const RunDirectory& directory) {
  return directory.file("checkpoints");
}

std::optional<Beginning> begin(const config::RunConfig& config, const plugins::Registry& registry,
                               const std::string& resolved_toml, bool overwrite) {
  const bool same_run = config.resume == "auto" || config.resume == "must";
  if (same_run && !overwrite && RunDirectory::holds_run(config.output_dir))
    return go_on(config, registry, resolved_toml);
  if (config.resume == "must")
    throw ConfigError("run.resume is \"must\", and '" + config.output_dir + "' holds no run");
  if (same_run || config.resume == "never" || !config.load_all) return anew(config, resolved_toml, overwrite);
  return from_elsewhere(config, resolved_toml, overwrite);
}

}  // namespace trainyard::train
