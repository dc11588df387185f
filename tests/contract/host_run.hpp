// The run files of core/check around every shipped plugin, and trainings with them in this process.
#pragma once

#include <string>
#include <vector>

#include "core/check/small_run.hpp"
#include "core/runfile/resolve.hpp"

namespace trainyard::contract {

using check::needs_ranks, check::set_path, check::Surroundings, check::title;
using HostRun = check::SmallRun;

/// Where messages say that the run file has an option of the plugin: "hooks[0].momentum".
inline std::string message_path(const plugins::PluginFile& plugin, const std::string& option) {
  std::string path = set_path(plugin, option);
  if (const std::size_t at = path.find(".0."); at != std::string::npos) path.replace(at, 3, "[0].");
  return path;
}

/// Of the shipped plugins, those that train on one rank; tests/contract/ranks.cpp has the others, too.
const std::vector<plugins::PluginFile>& alone();
/// Returns those that have a table in a run file: parts of other plugins have none.
const std::vector<plugins::PluginFile>& with_table();

/// Those of `files` that were drawn for what tries a plugin in every way: named, "kind name" a line, in the file of
/// TRAINYARD_DRAWN, which tools/test sets (tests/contract/draw). All of them where it is not set.
std::vector<plugins::PluginFile> drawn(const std::vector<plugins::PluginFile>& files);

/// The first run that trains with this plugin, on two ranks where it needs them. Fails the test, with every
/// reason, where none does.
const HostRun& host_run(const plugins::PluginFile& plugin);

/// A run file with this plugin, too, as its own run has it: in its slot, or behind the others of its list.
std::string with_plugin(const std::string& text, const HostRun& other);

/// What options of the run files are filled with.
const check::Materials& materials();

/// The shipped plugins and those of tests/faulty.
const plugins::Registry& all_plugins();

/// A run file, `sets` on top, on so many ranks, with any of these.
config::Resolution resolve(const std::string& text, const std::vector<std::string>& sets, int ranks);

/// Texts of values that an option might need, most likely first.
std::vector<std::string> candidates(const OptionSpec& option, const Surroundings& host);

/// Digests of a run's result.json and what else must not change from run to run.
struct Outcome {
  int exit_code = -1;
  std::string model, optimizer, error;
  std::int64_t steps = 0;
  std::int64_t swaps = 0;  ///< in the journal
  double loss = 0.0;       ///< of validation
};

/// What a run left in its folder.
Outcome outcome_of(const std::string& run_folder);

/// Trains in a fresh folder, as `trainyard train` does.
Outcome train_shortly(const std::string& text, const std::vector<std::string>& sets,
                      const plugins::Registry& registry);

}  // namespace trainyard::contract
