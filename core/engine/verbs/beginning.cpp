#include "core/engine/verbs/beginning.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include <trainyard/context.hpp>
#include <trainyard/error.hpp>

#include "core/engine/distributed/together.hpp"
#include "core/engine/train/loop.hpp"
#include "core/rundir/as_left.hpp"
#include "core/rundir/folder.hpp"
#include "core/rundir/quarantine.hpp"
#include "core/runfile/at_path.hpp"
#include "core/runfile/changes.hpp"
#include "core/runfile/planned_swaps.hpp"
#include "core/runfile/print.hpp"

namespace trainyard::train {
namespace {

namespace fs = std::filesystem;
using report::RunDirectory;

/// Returns the run file that a checkpoint holds among its states.
control::SwappedFile file_in(const std::vector<State>& states, const std::string& checkpoint) {
  const auto run = std::ranges::find(states, "run", &State::owner);
  if (run == states.end()) throw DataError(checkpoint + " holds no state of a run");
  const auto table = [&](const char* which) {
    return control::resolved_table(checkpoint, StateReader(*run).text(which));
  };
  return {table("file"), table("config"), checkpoint};
}

/// Checks the new file against the one that the run was begun with; returns the changes.
std::vector<std::string> checked_changes(const std::vector<config::Difference>& differences,
                                         std::int64_t step) {
  config::Findings findings;
  std::vector<std::string> lines = config::check_changes(differences, step, findings);
  if (findings.failed()) throw ConfigError(findings.text());
  return lines;
}

std::vector<config::PlannedSwap> planned_in(const Table& file) {
  std::vector<config::PlannedSwap> planned;
  if (const auto* entries = config::at_path<Array>(file, "swap"))
    for (const Value& entry : *entries) planned.push_back(config::planned_swap(entry.as<Table>()));
  return planned;
}

/// Notes that swaps have failed that brought, under their watch, a plugin that is quarantined since.
void blame_swaps(Beginning& beginning) {
  const State* const saved = beginning.loaded->find(control::ledger_owner);
  if (saved == nullptr) return;
  const control::Ledger ledger =
      control::Ledger::from_text(StateReader(*saved).text("text"), beginning.loaded->path);
  for (const control::Quarantined& each : control::read_quarantine(beginning.home))
    for (const auto& [entry, until] : ledger.made) {
      if (!until ||
          std::ranges::find(entry.swaps, each.plugin, &config::SwapRequest::type) == entry.swaps.end())
        continue;
      beginning.history.push_back({*entry.step, entry.who, std::string(control::swap_rolled_back),
                                   each.plugin + " is quarantined (" + each.reason + ")",
                                   control::details(entry)});
      beginning.directory.journal(beginning.history.back());
    }
}

/// Takes the ledger of swaps out of a checkpoint. If the journal goes on and tells that a swap was rolled
/// back since, the run stands where it was before that swap.
void take_ledger(Beginning& beginning, const std::vector<report::JournalEntry>& journal) {
  checkpoint::Loaded& loaded = *beginning.loaded;
  const State* const saved = loaded.find(control::ledger_owner);
  if (saved == nullptr) throw DataError(loaded.path + " holds no ledger of the run's swaps");
  beginning.ledger = control::Ledger::from_text(StateReader(*saved).text("text"), loaded.path);
  std::map<std::int64_t, std::vector<State>> befores;
  std::vector<State> states;
  for (State& state : loaded.states) {
    if (state.owner == control::ledger_owner) continue;
    std::optional<std::pair<std::int64_t, std::string>> before = control::owner_before(state.owner);
    if (before) state.owner = std::move(before->second);
    (before ? befores[before->first] : states).push_back(std::move(state));
  }
  loaded.states = std::move(states);
  beginning.planned = planned_in(file_in(loaded.states, loaded.path).given);
  const auto before = [&](std::int64_t number) {
    std::vector<State> found = std::move(befores[number]);
    const auto needed = [](const State& each) { return each.owner == "run" || each.owner == "model"; };
    if (std::ranges::count_if(found, needed) == 2) return found;
    throw DataError(loaded.path + ": swap " + std::to_string(number) +
                    " is watched, and the run before it is not there; remove this folder to go on from the "
                    "checkpoint before it, or take --overwrite");
  };
  if (const std::optional<std::int64_t> number = beginning.ledger.follow(journal)) {
    loaded.states = before(*number);
    loaded.step = StateReader(*loaded.find("run")).integer("step");
  }
  beginning.made.clear();
  for (control::MadeSwap& made : std::exchange(beginning.ledger.made, {}))
    beginning.made.push_back({made, made.until ? before(made.entry.number) : std::vector<State>()});
}

/// Returns the run as swaps that stay have left it, with later changes of the file on top. Watched swaps are
/// made again on that.
config::RunConfig effective(const Beginning& beginning, const config::RunConfig& config,
                            const plugins::Registry& registry) {
  const std::vector<State>& states =
      beginning.made.empty() ? beginning.loaded->states : beginning.made.front().before;
  return control::as_left(file_in(states, beginning.loaded->path), config, registry);
}

/// Goes on with the run in its directory, from a checkpoint.
void go_on_from(checkpoint::Loaded loaded, Beginning& beginning, const config::RunConfig& config,
                const plugins::Registry& registry) {
  for (const std::string& line :
       checked_changes(config::diff(file_in(loaded.states, loaded.path).given, config.resolved), loaded.step))
    beginning.notes.push_back("changed: " + line);
  beginning.loaded = std::move(loaded);
  if (beginning.home == beginning.directory.path()) blame_swaps(beginning);
  beginning.resumed = true;
  take_ledger(beginning, beginning.history);
  beginning.config = effective(beginning, config, registry);
}

/// Drops the requests to stop from a run that was stopped and is resumed by hand, so that it goes on.
void drop_stop(checkpoint::Loaded& loaded) {
  for (State& state : loaded.states)
    if (state.owner == "run")
      for (auto& [name, value] : state.scalars)
        if (name.starts_with(requests_of) || name.starts_with(waiting_of))
          value = StateReader(state).integer(name) & ~static_cast<std::int64_t>(Control::stop_run);
}

ConfigError no_checkpoint(const std::string& run) {
  return ConfigError("'" + run +
                     "' holds no checkpoint to go on from: --overwrite begins anew, and another run can "
                     "begin with the weights alone, by run.resume = \"" +
                     run + "\" and run.load = \"weights\"");
}

Beginning anew(const config::RunConfig& config, const std::string& resolved_toml, bool overwrite) {
  return {.directory = RunDirectory::create(config.run.output_dir, resolved_toml, overwrite),
          .home = config.run.output_dir,
          .config = config};
}

std::optional<Beginning> go_on(const config::RunConfig& config, const plugins::Registry& registry,
                               const std::string& resolved_toml) {
  const std::string& path = config.run.output_dir;
  const Table before = control::resolved_table(path + "/config.toml", RunDirectory::read_config(path));
  const bool completed = RunDirectory::status(path) == report::Status::completed;
  const bool stopped = RunDirectory::status(path) == report::Status::stopped;
  if (completed && checked_changes(config::diff(before, config.resolved), 0).empty()) return std::nullopt;

  if (completed && checkpoint::list(path + "/checkpoints").empty()) throw no_checkpoint(path);
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
  if (!loaded && config.run.resume == "must") throw no_checkpoint(path);
  if (!loaded || loaded->step == 0) {
    // No trained state is left, but the requests to the run are.
    { const RunDirectory unlocked = std::move(directory); }
    const std::vector<control::Quarantined> quarantined = control::read_quarantine(path);
    Beginning beginning{
        .directory = RunDirectory::restart(path, resolved_toml), .home = path, .config = config};
    for (const control::Quarantined& each : quarantined) control::quarantine(path, each);
    beginning.history = RunDirectory::read_journal(path);
    beginning.ledger.follow(beginning.history);
    return beginning;
  }
  Beginning beginning{
      .directory = std::move(directory), .home = path, .config = config, .notes = std::move(notes)};
  beginning.history = RunDirectory::read_journal(path);
  go_on_from(std::move(*loaded), beginning, config, registry);
  beginning.stop_dropped = stopped && config.run.resume == "must";
  if (beginning.stop_dropped) drop_stop(*beginning.loaded);
  beginning.directory.set_config(resolved_toml);
  return beginning;
}

/// Returns true if a run file describes the run just as its swaps have left it.
bool as_swapped(const checkpoint::Loaded& loaded, const config::RunConfig& config) {
  Table file = config.resolved;
  file.erase("swap");
  config::Findings findings;
  config::check_changes(config::diff(file_in(loaded.states, loaded.path).live, file), loaded.step, findings);
  return !findings.failed();
}

/// Finds what the file changes of another run. Returns true if it describes that run just as its swaps have
/// left it; throws ConfigError if the state fits neither.
bool check_elsewhere(const checkpoint::Loaded& loaded, const config::RunConfig& config,
                     std::vector<std::string>& changes) {
  config::Findings refused;
  changes = config::check_changes(config::diff(file_in(loaded.states, loaded.path).given, config.resolved),
                                  loaded.step, refused);
  const bool swapped = refused.failed() && as_swapped(loaded, config);
  if (refused.failed() && !swapped) throw ConfigError(refused.text());
  return swapped;
}

/// Goes on from another run's state, in a directory of its own.
void go_on_elsewhere(checkpoint::Loaded loaded, Beginning& beginning, const config::RunConfig& config,
                     const plugins::Registry& registry) {
  std::vector<std::string> changes;
  const bool swapped = check_elsewhere(loaded, config, changes);
  for (const std::string& line : changes) beginning.notes.push_back("changed: " + line);
  beginning.loaded = std::move(loaded);
  take_ledger(beginning, {});
  if (swapped)
    beginning.made.clear();  // the file has them already
  else
    beginning.config = effective(beginning, config, registry);
}

Beginning from_elsewhere(const config::RunConfig& config, const plugins::Registry& registry,
                         const std::string& resolved_toml, bool overwrite) {
  std::vector<std::string> notes;
  const bool single = fs::exists(fs::path(config.run.resume) / checkpoint::manifest_name);
  std::optional<checkpoint::Loaded> loaded;
  if (single)
    loaded = checkpoint::load(config.run.resume);
  else
    loaded = checkpoint::load_newest((fs::path(config.run.resume) / "checkpoints").string(),
                                     [&](const std::string& checkpoint, const std::string& why) {
                                       notes.push_back("passed over " + checkpoint + ": " + why);
                                     });
  if (!loaded)
    throw DataError("run.resume: '" + config.run.resume + "' holds no checkpoint that is whole" +
                    (notes.empty() ? "; run.load = \"weights\" takes the weights that it ended with"
                                   : ": " + notes.front()));
  std::vector<std::string> changes;
  check_elsewhere(*loaded, config, changes);  // checked before the folder of another run is replaced
  Beginning beginning = anew(config, resolved_toml, overwrite);
  beginning.notes = std::move(notes);
  go_on_elsewhere(std::move(*loaded), beginning, config, registry);
  return beginning;
}

}  // namespace

std::string checkpoint_folder(const RunDirectory& directory) {
  return directory.file("checkpoints");
}

std::optional<Beginning> begin(const config::RunConfig& config, const plugins::Registry& registry,
                               const std::string& resolved_toml, bool overwrite) {
  const bool same_run = config.run.resume == "auto" || config.run.resume == "must";
  if (same_run && !overwrite && RunDirectory::holds_run(config.run.output_dir))
    return go_on(config, registry, resolved_toml);
  if (config.run.resume == "must")
    throw ConfigError("run.resume is \"must\", and '" + config.run.output_dir + "' holds no run");
  if (same_run || config.run.resume == "never" || config.run.load == config::RunKeys::Load::weights)
    return anew(config, resolved_toml, overwrite);
  return from_elsewhere(config, registry, resolved_toml, overwrite);
}

std::string told(const std::optional<Beginning>& beginning) {
  State state;
  state.scalars["complete"] = !beginning;
  if (!beginning) return distributed::to_bytes({state});
  state.scalars["home"] = std::filesystem::absolute(beginning->home).string();
  state.scalars["resumed"] = beginning->resumed;
  state.scalars["stop_dropped"] = beginning->stop_dropped;
  state.scalars["checkpoint"] = beginning->loaded ? beginning->loaded->path : std::string();
  return distributed::to_bytes({state});
}

std::optional<Beginning> begin_beside(const std::string& told, int rank, const config::RunConfig& config,
                                      const plugins::Registry& registry, const std::string& resolved_toml) {
  const State state = distributed::from_bytes(told).front();
  const StateReader first(state);
  if (first.boolean("complete")) return std::nullopt;
  const std::string& home = first.text("home");
  Beginning beginning{
      .directory = RunDirectory::create(home + "/ranks/" + std::to_string(rank), resolved_toml, true),
      .home = home,
      .config = config};
  beginning.history = RunDirectory::read_journal(home);
  if (const std::string& checkpoint = first.text("checkpoint"); checkpoint.empty())
    beginning.ledger.follow(beginning.history);
  else if (first.boolean("resumed"))
    go_on_from(checkpoint::load(checkpoint), beginning, config, registry);
  else
    go_on_elsewhere(checkpoint::load(checkpoint), beginning, config, registry);
  if (first.boolean("stop_dropped")) drop_stop(*beginning.loaded);
  beginning.config.run.output_dir = beginning.directory.path();
  return beginning;
}

Beginning begin_in_place(distributed::World& world, const config::RunConfig& config,
                         const plugins::Registry& registry) {
  const int rank = world.rank();
  const std::string home = fs::absolute(config.run.output_dir).string();
  const std::string own = rank == 0 ? config.run.output_dir : home + "/ranks/" + std::to_string(rank);
  Beginning beginning{.directory = RunDirectory::extend(own), .home = home, .config = config};
  world.replace_lost();
  beginning.joined = join(world);
  checkpoint::Loaded loaded{.path = "the other ranks",
                            .step = beginning.joined->position.step,
                            .states = std::move(beginning.joined->states)};
  beginning.loaded = std::move(loaded);
  take_ledger(beginning, {});
  beginning.config = effective(beginning, config, registry);
  beginning.config.run.output_dir = own;
  return beginning;
}

bool begin_again(Beginning& beginning, const events::BlamedError& error, const config::RunConfig& config,
                 const plugins::Registry& registry) {
  const events::Blame& blame = error.blame();
  for (const events::BlamedError& each : beginning.left_out)
    if (each.blame().slot == blame.slot && each.blame().step == blame.step) return false;
  if (!blame.rollback) return false;
  std::optional<checkpoint::Loaded> loaded =
      checkpoint::load_newest(checkpoint_folder(beginning.directory), [](const auto&, const auto&) {});
  if (!loaded) return false;
  beginning.notes.clear();
  beginning.history = RunDirectory::read_journal(beginning.home);  // it has lines of this process, too
  go_on_from(std::move(*loaded), beginning, config, registry);
  beginning.left_out.push_back(error);
  beginning.directory.journal(
      {blame.step, "host", "rolled_back", "to the last checkpoint: " + std::string(error.what()), {}});
  return true;
}

}  // namespace trainyard::train
