// What a loop asks of others: of whoever has it train, of where its state is saved, of the run it belongs to.
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

/// Whoever has a run train. Loop thread, but for open(); by default nothing comes of any of it.
class LoopHost {
 public:
  virtual ~LoopHost() = default;

  /// Ahead of every step: whether training metrics of the one of that number are wanted.
  virtual bool log_due(std::int64_t /*step*/) { return false; }
  /// Metrics, off the loop's hands; must not block.
  virtual void record(Record&& /*record*/) {}
  /// One line of the journal.
  virtual void journal(std::string_view /*who*/, std::string_view /*what*/, std::string_view /*why*/) {}

  /// After the hooks of a safe point: commands of users, swaps. The run may look different afterwards.
  virtual void at_safe_point() {}
  /// Of several ranks: this one has something that all of them have to do at a safe point.
  virtual bool has_orders() const { return false; }
  /// Of several ranks: swaps that they have to make at steps to come, the same on all.
  virtual std::int64_t planned_swaps() const { return 0; }
  /// A step failed: true where the run went back to a safe point before it, and goes on from there.
  virtual bool recover(const Error& /*error*/) { return false; }
  /// Of several ranks, where the loss of one does not end the run. All that comes before the step is done.
  virtual void begin_step() {}
  /// The ranks could not tell each other that all of them have the gradients of the step. Returns where
  /// another one has updated its weights nevertheless, and this one has to, too; rethrows where none has.
  virtual void update_as_others(const Error& /*error*/) { throw; }
  /// The training and its last evaluations are done: what is not settled yet has to be. May throw, and have
  /// the run go back. False where a signal cut it short.
  virtual bool closing() { return true; }
  /// The executor is about to pause where nothing in the run file has it pause: a resume has to repeat it.
  virtual void pausing(std::string_view /*why*/) {}
  /// Adds to what is about to be saved what the run does not know itself.
  virtual void complete(Snapshot& /*snapshot*/) {}

  // Of swaps; sinks and the checkpointer are called by others than the run.
  /// A plugin will come in: beside the run, on the thread that prepares it. Throws Error.
  virtual void open(ActivePlugin& /*plugin*/) {}
  /// One is about to go: it finishes what it has begun. Throws Error.
  virtual void settle(ActivePlugin& /*plugin*/) {}
  /// A slot has another plugin from here on.
  virtual void use(ActivePlugin& /*plugin*/) {}
};

/// A checkpoint on the disk.
struct Saved {
  std::string path;
  std::int64_t step = -1;
};

/// How a loop has its state saved. Loop thread.
class Saver {
 public:
  virtual ~Saver() = default;

  /// Steps from one checkpoint to the next, and one more at the end of the training; 0: only on interruption
  /// and request.
  virtual std::int64_t every() const = 0;
  /// Takes what the run is now.
  virtual void save() = 0;
  /// Each that has reached the disk, once.
  virtual std::optional<Saved> take_committed() = 0;
  /// Waits for those on their way.
  virtual void drain() = 0;
};

/// The run that a loop belongs to.
class LoopOwner {
 public:
  virtual ~LoopOwner() = default;

  /// Ahead of everything that may write weights or the optimizer's state: until then others read them.
  virtual void settle() {}
  /// All ranks, ahead of the passes of an evaluation and behind them: who makes fewer waits for the others.
  virtual void begin_evaluation() {}
  virtual void end_evaluation() {}
  /// At safe points: throws what a plugin's own threads threw; with --strict-state, looks for state that is not
  /// saved.
  virtual void check_threads() {}

  // Of executors that train several models (executor.hpp).
  virtual Table run_file(const std::vector<std::string>& /*set*/) const { return {}; }
  virtual std::unique_ptr<Network> build(std::uint64_t /*seed*/) { return nullptr; }
};

inline LoopHost no_host;
inline LoopOwner no_owner;

}  // namespace trainyard::train
