// Decides how a run begins: anew, where it stood, or from another run's state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/engine/events/bus.hpp"
#include "core/engine/recovery/rendezvous.hpp"
#include "core/engine/save/load.hpp"
#include "core/engine/swap/commander.hpp"
#include "core/plugins/registry.hpp"
#include "core/rundir/run_directory.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

struct Beginning {
  report::RunDirectory directory;             ///< this rank's folder
  std::string home;                           ///< the run's folder: the same on the first rank
  std::vector<report::JournalEntry> history;  ///< the run's journal so far
  config::RunConfig config;                   ///< the run file, or what swaps that stay have made of it
  std::optional<checkpoint::Loaded> loaded;   ///< what the run goes on from; nothing: it begins anew
  bool stop_dropped = false;                  ///< the run was stopped, and is to go on
  bool resumed = false;                       ///< the same run goes on in its directory
  std::vector<std::string> notes;             ///< lines for the journal
  control::Ledger ledger;                     ///< open requests, without those that the run file plans anew
  std::vector<config::PlannedSwap> planned;   ///< the plan of the run file with which the ledger was written
  std::vector<control::MadeBefore> made;      ///< swaps that are watched where the run goes on
  std::optional<Joined> joined;               ///< set in a process that replaces a killed rank
  std::vector<events::BlamedError> left_out;  ///< errors of hooks that the run goes on without
};

/// Returns the folder of the run's checkpoints.
std::string checkpoint_folder(const report::RunDirectory& directory);

/// Takes the run directory as run.resume says, and reads the checkpoint. Returns nothing if the run is
/// complete already and the file asks for no more. Throws ConfigError for changes that do not fit the state
/// (config/changes.hpp), DataError if no checkpoint is whole.
std::optional<Beginning> begin(const config::RunConfig& config, const plugins::Registry& registry,
                               const std::string& resolved_toml, bool overwrite);

/// Returns, as text, what the other ranks need of the beginning that rank 0 has made.
std::string told(const std::optional<Beginning>& beginning);

/// Makes the same beginning on another rank, in a folder of its own within that of the run.
std::optional<Beginning> begin_beside(const std::string& told, int rank, const config::RunConfig& config,
                                      const plugins::Registry& registry, const std::string& resolved_toml);

/// Begins in a process that replaces a killed rank: it goes on in that rank's folder, from the state that it
/// waits for and gets from the other ranks.
Beginning begin_in_place(distributed::World& world, const config::RunConfig& config,
                         const plugins::Registry& registry);

/// Answers [guard] nan = "rollback": the run goes back to its newest checkpoint, as at a resume, without that
/// hook. Returns false if it cannot, or if it did so here before: a swap brought the hook back.
bool begin_again(Beginning& beginning, const events::BlamedError& error, const config::RunConfig& config,
                 const plugins::Registry& registry);

}  // namespace trainyard::train
