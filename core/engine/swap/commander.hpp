// Executes, at safe points, commands of the control socket and requests of the run's ledger.
#pragma once

#include <atomic>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/swap/channel.hpp"
#include "core/engine/swap/swaps.hpp"
#include "core/engine/swap/task_thread.hpp"
#include "core/rundir/ledger.hpp"
#include "core/rundir/run_directory.hpp"

namespace trainyard::control {

/// A swap of a saved run; if it was watched, with the state of the run before it.
struct MadeBefore {
  MadeSwap made;
  std::vector<State> before;
};

/// Used on the loop thread. Swaps are prepared, one at a time, on a thread of the commander's, which also
/// writes the journal: the loop does not wait for the disk.
class Commander {
 public:
  /// `run` is built. `channel` is null if another rank has it. `ledger` holds the requests that are open from
  /// the beginning; those that it holds as made are made by go_on_with().
  Commander(train::Run& run, Channel* channel, report::RunDirectory& directory, Ledger ledger);
  Commander(const Commander&) = delete;
  Commander& operator=(const Commander&) = delete;

  /// Implements LoopHost::at_safe_point. Throws if the weights are not finite at the end of a watch.
  void at_safe_point();
  /// Adds a request as a client's command does; its outcome goes into the journal.
  void ask(config::SwapRequest request, const std::string& who) { add(who, {std::move(request)}); }
  /// Implements LoopHost::has_orders: true if clients or plugins asked this rank for something.
  bool has_orders() const { return has_work() || paused_ || !pauses_.empty(); }
  /// Implements LoopHost::planned_swaps.
  std::int64_t planned() const { return std::ssize(due_); }
  /// Implements LoopHost::recover: rolls back the newest swap that is still watched, and what was made after
  /// it, which then comes again.
  bool recover(const Error& error);
  /// Implements LoopHost::closing: watches end with the training. Throws as at_safe_point() does.
  void close_watches() { end_watches(std::numeric_limits<std::int64_t>::max()); }

  /// Implements LoopHost::pausing.
  void note_pause(std::string why);
  /// Adds the ledger to a snapshot, and the state of the run before each swap that is watched.
  void complete(Snapshot& snapshot);
  /// Repeats the swaps of a run that was saved under their watch, and is built as before them; keeps the
  /// state before each. The caller restores the state of the run itself after that.
  void go_on_with(std::vector<MadeBefore> made);

  /// Returns how many requests were made, refused and rolled back so far, in this process.
  const report::SwapCounts& counts() const { return counts_; }

 private:
  /// The state to which the run goes back if anything fails before `until`.
  struct Watch {
    std::shared_ptr<train::StateCopy> before;
    std::int64_t until;  ///< a step
  };
  /// A swap from its request to its end.
  struct Job {
    Entry entry;
    std::optional<Command> command;  ///< the command of a client who waits for the answer
    std::unique_ptr<train::PreparedSwap> prepared;
    std::string refused;
    std::atomic<bool> done{false};  ///< prepared, or failed
  };
  /// A watched swap of the run, or what came after one: another swap, or a pause of the executor.
  struct RevertibleSwap {
    Entry entry;
    std::unique_ptr<train::PreparedSwap> swap;  ///< null: a pause
    std::optional<Watch> watch;
  };

  void end_watches(std::int64_t step);
  void prepare_next();
  void put_back();
  void make_due();
  void finish();
  bool has_work() const { return !waiting_.empty() || !evaluations_.empty() || checkpoint_due_; }
  /// Returns true if the run is paused and no signal has ended the pause.
  bool holds() const { return paused_ && !run_.loop().caught(); }
  void attend();
  void begin_pauses();
  void checkpoint();
  void obey_together();
  bool obey_first();
  void commit(Job& job);
  void refuse(Job& job, const std::string& why);
  static std::shared_ptr<Job> anew(Job& job);
  void make(const std::deque<std::shared_ptr<Job>>& jobs);
  std::string agree_with_others(Job& job, const std::shared_ptr<train::StateCopy>& before,
                                const std::string& refused);
  void start(const std::shared_ptr<Job>& job);
  void retire(std::unique_ptr<train::PreparedSwap> swap);
  void obey();
  void obey(Command command);
  Job& add(std::string who, std::vector<config::SwapRequest> swaps);
  void evaluate(Command* command);
  void answer_checkpoints();
  Status status() const;
  void note_end(const Entry& of, std::string_view what, std::string why);
  void stand(Entry pause);
  void write_lines();

  train::Run& run_;
  Channel* channel_;
  report::RunDirectory& directory_;
  train::Swaps swaps_;
  std::int64_t next_number_;
  std::deque<Entry> due_;  ///< in the order of their steps
  std::deque<std::shared_ptr<Job>> waiting_;
  std::shared_ptr<Job> current_;            ///< in preparation, or prepared
  std::vector<RevertibleSwap> revertible_;  ///< oldest first; the oldest is watched
  report::SwapCounts counts_;
  std::map<std::string, std::int64_t> swapped_;  ///< number of swaps by slot
  struct AskedCheckpoint {
    Command command;
    std::int64_t step;
  };
  std::deque<AskedCheckpoint> checkpoints_;
  std::deque<Command> evaluations_, pauses_;  ///< on several ranks: they wait for the others
  bool checkpoint_due_ = false;
  bool paused_ = false;
  bool stopping_ = false;  ///< a client asked the run to stop

  std::mutex lines_mutex_;
  /// Lines of the journal that are not written yet, each without its details.
  std::deque<std::pair<report::JournalEntry, Entry>> lines_;
  TaskThread tasks_;  ///< the last member: it ends before what its tasks use
};

}  // namespace trainyard::control
