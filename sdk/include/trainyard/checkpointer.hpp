// checkpointer/1: writes the state of a run to the disk.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/codec.hpp>
#include <trainyard/contract.hpp>
#include <trainyard/duration.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/state.hpp>
#include <trainyard/value.hpp>

TRAINYARD_CONTRACT("checkpointer.hpp");

namespace trainyard {

/// Everything that a run needs to continue from a step.
struct Snapshot {
  std::int64_t step = 0;
  std::vector<State> states;  ///< of the run itself, the model and every plugin with state; owners differ
  std::vector<State> fixed;   ///< further states whose tensors nobody changes any more: they need no copy
  std::map<std::string, double, std::less<>> metrics;  ///< the last values, which keep_best compares
};

/// Stores the checkpoints of a run on the disk.
class CheckpointStore {
 public:
  virtual ~CheckpointStore() = default;

  /// Writes a checkpoint and commits it: all files are written to a temporary folder, which is then renamed;
  /// only after that `latest` is moved and old checkpoints are deleted. Copies tensors to the CPU if need be.
  /// Any thread, one call at a time. Throws DataError with path and reason; the store is then as it was
  /// before.
  virtual void commit(const Snapshot& snapshot) = 0;
};

struct KeepBest {
  std::string metric;
  std::string mode = "min";
  std::int64_t k = 1;

  static void describe(Fields<KeepBest>& m) {
    m.option("metric", &KeepBest::metric, "\"val/loss\" or \"val/\" and the id of a metric")
        .metric()
        .required();
    m.option("mode", &KeepBest::mode, "whether lower or higher is better").one_of({"min", "max"});
    m.option("k", &KeepBest::k, "how many of the best are kept").range(1, 1e6);
  }
};

/// Says when checkpoints are taken and which are kept: the host's part, the same for every checkpointer. The
/// host also takes one when a signal or max_wall_time ends the run, and on request.
struct CheckpointCommon {
  std::optional<Duration> interval;
  std::int64_t keep_last = 1;
  std::optional<Duration> keep_every;
  std::optional<KeepBest> keep_best;
  PluginList<Codec> codec;

  static void describe(Fields<CheckpointCommon>& m) {
    m.option(
        "interval", &CheckpointCommon::interval,
        "steps between checkpoints; without it they are written at evaluations where keep_best is set, else "
        "only at the end of the run, or where it is interrupted");
    m.option("keep_last", &CheckpointCommon::keep_last, "how many of the newest are kept").range(1, 1e6);
    m.option("keep_every", &CheckpointCommon::keep_every,
             "the first at or after each multiple of it is kept for good");
    m.option("keep_best", &CheckpointCommon::keep_best, "those with the best values of a metric are kept");
    m.option(
        "codec", &CheckpointCommon::codec,
        "stores tensors in fewer bytes, without loss; those that it makes no shorter, and tables in parts "
        "on the ranks, stay as they are");
  }
};

class Network;
class Optimizer;

/// Describes a rank recovery: new processes replace lost ones, and all ranks go on from the same step.
struct Replacement {
  std::vector<int> ranks;    ///< ranks that are new processes, ascending
  std::int64_t step = 0;     ///< steps done by then; a step that was under way is done again
  std::int64_t samples = 0;  ///< samples that the run had taken by then
  double seconds = 0.0;      ///< since this process noticed the loss; in a new process, since it was built
};

/// Interface of a checkpointer for rank recovery, where a killed rank does not end the run (Maeng et al.,
/// "CPR", MLSys 2021, section 3: partial recovery). The survivors keep all that they have in memory and their
/// step count; a new process takes from one of them all that is the same on every rank: weights, the
/// optimizer's state, the states of plugins and the clock, but not what the lost rank's compressor kept back
/// of its gradients. The host does that for runs of `trainyard train --ranks N`; with another launcher, and
/// where a compressor has groups of ranks of its own, the run ends as it does without this interface.
class ReplacesRanks {
 public:
  virtual ~ReplacesRanks() = default;

  /// Called on every rank, old and new, once the new ones have that state and before the next step; loop
  /// thread. It may write what only the lost process had. An exception that it throws ends the run.
  virtual void replaced(const Replacement& what, Network& network, Optimizer& optimizer) = 0;
};

/// All calls come from the loop thread.
class Checkpointer : public Plugin {
 public:
  static constexpr Kind kind{"checkpointer", 1};
  using Common = CheckpointCommon;

  /// Called once, before anything else. `store` outlives the plugin's use.
  virtual void open(CheckpointStore& store) = 0;

  /// Takes a snapshot at a safe point. The tensors of `states` are the run's own and change as soon as this
  /// returns: copy now whatever is written later. Commits go to the store, at once or later, in the order of
  /// the calls.
  virtual void take(Snapshot snapshot) = 0;

  /// Waits until every snapshot given to `take` is committed; throws the error of one that could not be.
  virtual void drain() = 0;

  /// Returns the interface for rank recovery. Null: a killed rank ends the run, which is resumed by hand.
  virtual ReplacesRanks* replaces_ranks() { return nullptr; }

  Common common;
};

}  // namespace trainyard
