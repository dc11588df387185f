// How a run begins: anew, where it stood, or from another run's state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/engine/events/bus.hpp"
#include "core/engine/save/load.hpp"
#include "core/engine/swap/commander.hpp"
#include "core/engine/train/meeting.hpp"
#include "core/plugins/registry.hpp"
#include "core/rundir/run_directory.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

struct Beginning {
  report::RunDirectory directory;             ///< of this rank
  std::string home;                           ///< of the run: the same, but for ranks behind the first
  std::vector<report::JournalEntry> history;  ///< of the run, from before
  config::RunConfig config;                   ///< of the run file, or as swaps that stay have left the run
  std::optional<checkpoint::Loaded> loaded;   ///< what the run goes on from; nothing: anew
  bool stop_dropped = false;                  ///< it was stopped, and is to go on
  bool resumed = false;                       ///< the same run goes on in its directory
  std::vector<std::string> notes;             ///< for the journal
  control::Ledger ledger;                     ///< what is open there, without what the run file plans anew
  std::vector<config::PlannedSwap> planned;   ///< that the ledger was written with
  std::vector<control::MadeBefore> made;      ///< swaps that are watched where the run goes on
  std::optional<Joined> joined;               ///< of a process in the place of one that was killed
  std::vector<events::BlamedError> left_out;  ///< by hooks that the run goes on without
};

/// Where the run's checkpoints lie.
std::string checkpoint_folder(const report::RunDirectory& directory);

/// Takes the run directory as run.resume says, and reads the checkpoint. Nothing where the run is complete
/// already and the file asks for no more. Throws ConfigError for changes that the state does not fit
/// (config/changes.hpp), DataError where no checkpoint is whole.
std::optional<Beginning> begin(const config::RunConfig& config, const plugins::Registry& registry,
                               const std::string& resolved_toml, bool overwrite);

/// What the other ranks have to know of the beginning that rank 0 has made of it; as text, to be sent.
std::string told(const std::optional<Beginning>& beginning);

/// The same beginning on another rank, in a folder of its own beneath that of the run.
std::optional<Beginning> begin_beside(const std::string& told, int rank, const config::RunConfig& config,
                                      const plugins::Registry& registry, const std::string& resolved_toml);

/// Of a process that takes the place of a rank that was killed: it goes on with that one's folder, from what the
/// others have of the run, for which it waits.
Beginning begin_in_place(distributed::World& world, const config::RunConfig& config,
                         const plugins::Registry& registry);

/// The answer of [guard] nan = "rollback": the run begins again at its newest checkpoint, as at a resume, and
/// without that hook. False where it cannot, or has led here before: a swap brought the hook back.
bool begin_again(Beginning& beginning, const events::BlamedError& error, const config::RunConfig& config,
                 const plugins::Registry& registry);

}  // namespace trainyard::train
