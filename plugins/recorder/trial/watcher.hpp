// The thread that runs the rules.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <trainyard/host.hpp>
#include <trainyard/rule_set.hpp>

#include "firing.hpp"
#include "notice.hpp"
#include "queue.hpp"

namespace trial {

using namespace trainyard;

/// Calls come from the loop thread; `push` from any.
class Watcher {
 public:
  Watcher(std::vector<Collection> collections, std::size_t most_records, Host& host, std::string run,
          bool notify);

  void start();
  /// Waits for what is in the queue, then for the rule that is at work, for a moment; rules are called no
  /// more.
  void stop(std::chrono::milliseconds patience);
  /// As Recorder::attach: from now on, or from the next start on.
  void attach(std::vector<NamedRule> rules, const RunScale& scale);

  /// False where the queue is full: the record is not shown to the rules.
  bool push(std::shared_ptr<const StepRecord> record);
  /// Forgets the records from a step on.
  void go_back(std::int64_t step);
  /// Shows the last steps of a trial's folder, before `step`, to nobody, but keeps them for looking back.
  void recall(std::string folder, std::int64_t step);
  bool drain(std::chrono::milliseconds patience) { return queue_.drain(patience); }
  /// Drops what waits, and lets a rule that is at work end, if it does within a second.
  void clear();

  /// Whether a rule fired since the last `take`.
  bool fired() const { return fired_.load(std::memory_order_relaxed); }
  std::vector<Firing> take();

 private:
  void hand(const std::vector<NamedRule>& rules);
  void work(const std::stop_token& stop, int shift);
  void done(const Verdict& verdict);

  Host& host_;
  const bool notify_;
  Notices notices_;
  RuleSet set_;
  Queue<std::function<void()>> queue_;
  std::vector<NamedRule> rules_;
  RunScale scale_;
  std::atomic<bool> fired_{false};
  std::mutex mutex_;
  std::vector<Firing> firings_;
  std::chrono::steady_clock::time_point last_record_, last_wait_;
  std::atomic<int> shift_{0};  ///< threads that were left behind; each knows the number that it began with
  std::shared_ptr<void> thread_;
};

}  // namespace trial
