// Obeys, at safe points: commands of the control socket, and swaps that the run file plans or a resume
// repeats.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/control/channel.hpp"
#include "core/report/run_directory.hpp"
#include "core/train/prepared_swap.hpp"

namespace trainyard::control {

/// A swap that comes at a step.
struct DueSwap {
  std::int64_t step = 0;  ///< at the first safe point that is not before it
  config::SwapRequest request;
  std::string who;  ///< "config"; of one that a resume repeats: "ctl", or the id of a plugin
};

struct CommanderParts {
  train::Run* run = nullptr;
  Channel* channel = nullptr;                ///< null: nobody can command
  const std::atomic<int>* signal = nullptr;  ///< ends a pause
  /// Swaps are written down on the thread that prepares them: the loop does not wait for the disk.
  std::function<void(report::JournalEntry)> journal = [](const report::JournalEntry&) {};
  std::function<void(const std::string&)> warn = [](const std::string&) {};  ///< any thread
  std::function<void()> swapped = [] {};                                     ///< the run has another plugin
  /// Path and step of the newest checkpoint that is on the disk.
  std::function<std::pair<std::string, std::int64_t>()> last_checkpoint = [] {
    return std::pair{std::string(), std::int64_t{-1}};
  };
};

/// Loop thread. Swaps are prepared on a thread of its own, one at a time.
class Commander {
 public:
  Commander(CommanderParts parts, std::vector<DueSwap> due);
  ~Commander();
  Commander(const Commander&) = delete;
  Commander& operator=(const Commander&) = delete;

  /// LoopParts::control. Throws what a swap of the run file throws.
  void at_safe_point();
  /// As a client's command; what becomes of it goes into the journal.
  void ask(config::SwapRequest request, const std::string& who);
  /// LoopParts::recover: takes back a swap that is still watched.
  bool recover(const Error& error);
  /// CheckpointParts::put_off: a checkpoint holds swaps only that are there to stay.
  bool puts_off_checkpoint();

 private:
  /// The answer to a command that asks for several swaps.
  struct Reply {
    Command command;
    std::size_t open;  ///< swaps to come
    std::string done, refused;
  };
  /// A swap from its request to its end.
  struct Job {
    config::SwapRequest request;
    std::string who;
    std::shared_ptr<Reply> reply;  ///< null: nobody waits for an answer
    std::unique_ptr<train::PreparedSwap> prepared;
    std::exception_ptr error;
    std::atomic<bool> done{false};  ///< prepared, or failed
  };
  struct Watched {
    std::shared_ptr<Job> job;
    Snapshot before;
    std::int64_t until;  ///< step
    std::int64_t epoch;
  };

  void settle();
  void prepare_next();
  void put_back();
  void finish();
  std::string commit(const std::shared_ptr<Job>& job);
  void start(const std::shared_ptr<Job>& job);
  void wait_for(const Job& job);
  void retire(std::unique_ptr<train::PreparedSwap> swap);
  void later(std::function<void()> task);
  void hand_on();
  void obey();
  void obey(Command command);
  void ask_swaps(Command command, std::vector<config::SwapRequest> requests);
  void answer_checkpoints();
  Status status() const;
  void note(const std::string& who, const std::string& what, const std::string& why) const;
  void note_later(report::JournalEntry entry, const std::shared_ptr<Job>& job);
  void work();

  CommanderParts parts_;
  std::deque<DueSwap> due_;
  std::deque<std::shared_ptr<Job>> waiting_;
  std::shared_ptr<Job> current_;  ///< in preparation, or ready
  std::optional<Watched> watched_;
  std::map<std::string, std::int64_t> generations_;  ///< swaps of each slot
  struct AskedCheckpoint {
    Command command;
    std::int64_t step;
  };
  std::deque<AskedCheckpoint> checkpoints_;
  bool paused_ = false;
  bool put_off_ = false;  ///< a checkpoint, since the swap that is watched

  std::vector<std::function<void()>> added_;  ///< to tasks_, at the end of the safe point
  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  std::deque<std::function<void()>> tasks_;
  bool expecting_ = false;  ///< there is a swap in preparation, or ready
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace trainyard::control
