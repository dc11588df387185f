// Interfaces that a loop calls: of the host that has it train, of the saver of its state, of its run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <trainyard/checkpointer.hpp>
#include <trainyard/error.hpp>
#include <trainyard/sink.hpp>

namespace trainyard::train {

class ActivePlugin;

/// The host of a training. Loop thread, except for open(); by default no call has an effect.
class LoopHost {
 public:
  virtual ~LoopHost() = default;

  /// Called before every step: returns true if training metrics of step number `step` are wanted.
  virtual bool log_due(std::int64_t /*step*/) { return false; }
  /// Takes a record of metrics off the loop's hands; must not block.
  virtual void record(Record&& /*record*/) {}
  /// Writes one line of the journal.
  virtual void journal(std::string_view /*who*/, std::string_view /*what*/, std::string_view /*why*/) {}

  /// Called after the hooks of a safe point: commands of users, swaps. It may change the run.
  virtual void at_safe_point() {}
  /// On several ranks: returns true if this one has something that all have to do at a safe point.
  virtual bool has_orders() const { return false; }
  /// On several ranks: returns the number of swaps planned for later steps, the same on all ranks.
  virtual std::int64_t planned_swaps() const { return 0; }
  /// Called after a failed step: returns true if the run went back to a safe point before it, and goes on.
  virtual bool recover(const Error& /*error*/) { return false; }
  /// For rank recovery: called before each step, when all that precedes it is done.
  virtual void begin_step() {}
  /// Called when the ranks could not tell each other that all have the gradients of a step. Returns if
  /// another rank has updated its weights nevertheless, so that this one must, too; rethrows if none has.
  virtual void update_as_others(const Error& /*error*/) { throw; }
  /// Called when the training and its last evaluations are done, to settle the rest. May throw, and have the
  /// run go back. Returns false if a signal cut it short.
  virtual bool closing() { return true; }
  /// Called before the executor pauses for a reason that is not in the run file: a resume has to repeat it.
  virtual void pausing(std::string_view /*why*/) {}
  /// Adds to a snapshot what the run does not know itself.
  virtual void complete(Snapshot& /*snapshot*/) {}

  // For swaps; the run does not call sinks and the checkpointer itself.
  /// A plugin is prepared beside the run, on the thread that prepares swaps. Throws Error.
  virtual void open(ActivePlugin& /*plugin*/) {}
  /// The checkpointer is about to leave: it finishes what it has begun. Throws Error.
  virtual void settle() {}
  /// Called when other plugins are in the run's slots from here on.
  virtual void exchanged() {}
};

/// A checkpoint on the disk.
struct Saved {
  std::string path;
  std::int64_t step = -1;
};

/// Saves the state of a loop. Loop thread.
class Saver {
 public:
  virtual ~Saver() = default;

  /// Returns the steps from one checkpoint to the next (there is one more at the end of training); 0: only on
  /// interruption and request.
  virtual std::int64_t every() const = 0;
  /// Returns true if the best of what is saved is kept: the last weights may be.
  virtual bool keeps_best() const { return false; }
  /// Takes a snapshot of the run as it is now.
  virtual void save() = 0;
  /// Returns each checkpoint that has reached the disk, once.
  virtual std::optional<Saved> take_committed() = 0;
  /// Waits for checkpoints on their way to the disk.
  virtual void drain() = 0;
};

/// The run that a loop belongs to.
class LoopOwner {
 public:
  virtual ~LoopOwner() = default;

  /// Called before anything may write weights or the optimizer's state: until then others may read them.
  virtual void settle() {}
  /// Called on all ranks around an evaluation's passes: a rank with fewer passes waits for the others.
  virtual void begin_evaluation() {}
  virtual void end_evaluation() {}
  /// Called at safe points: throws what a plugin's own threads threw; with --strict-state it also looks for
  /// state that is not saved.
  virtual void check_threads() {}

  // For executors that train several models (executor.hpp).
  virtual Table run_file(const std::vector<std::string>& /*set*/) const { return {}; }
  virtual std::unique_ptr<Network> build(std::uint64_t /*seed*/) { return nullptr; }
};

inline LoopHost no_host;
inline LoopOwner no_owner;

}  // namespace trainyard::train
