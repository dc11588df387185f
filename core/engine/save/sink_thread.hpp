// Hands records to the sinks of a run on a thread of their own, so that a slow disk never holds the loop up.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <trainyard/sink.hpp>

namespace trainyard::report {

class SinkThread {
 public:
  struct Entry {
    std::string id;                              ///< of the sink in the run file, for messages
    Sink* sink = nullptr;                        ///< outlives this object; null: another rank's
    std::int64_t interval;                       ///< steps between its training records, at least 1
    std::string slot = "logging.sinks", plugin;  ///< place in the run file and name, for a report of a crash
  };

  /// What a sink cost, and why it was switched off, if it was.
  struct Usage {
    std::string id;
    double seconds = 0.0;
    std::string error;
  };

  /// Opens the sinks on the thread. `warn` gets one line for a sink that is switched off and one about
  /// dropped records; it is called on the sinks' thread. At most `capacity` training records wait.
  SinkThread(RunInfo run, std::vector<Entry> sinks, std::function<void(std::string_view)> warn,
             std::size_t capacity = 1024);
  ~SinkThread() { close(); }
  SinkThread(const SinkThread&) = delete;
  SinkThread& operator=(const SinkThread&) = delete;

  /// Whether any sink takes a training record of this step (counted from 1): at multiples of its interval and
  /// at the run's last step. Any thread, no lock.
  bool due(std::int64_t step) const;

  /// Never waits for a sink. A training record is dropped, and counted, while the queue is full; others are
  /// always kept.
  void push(Record record);

  /// Another sink takes the place of the one with this id: that one gets what was pushed so far and is
  /// closed, and this one is opened, as that of a run that goes on from `step`. Waits until both are done.
  /// Loop thread.
  void replace(Entry entry, std::int64_t step);

  /// The run has gone back to `step`: the sinks get what was pushed so far, are closed, and opened as those
  /// of a run that goes on from there, so that no step is told twice. Waits until that is done. Loop thread.
  void go_back(std::int64_t step);

  /// Waits until the sinks have what was pushed so far. Loop thread.
  void flush();

  /// Hands over what is queued, closes the sinks and ends the thread. Safe to call again.
  void close();

  std::int64_t dropped() const;
  /// After close().
  const std::vector<Usage>& usage() const { return usage_; }

 private:
  void work();
  void between_records(std::function<void()> task);
  void reopen(std::size_t index, std::int64_t step);
  bool takes(const Entry& entry, std::int64_t step) const;
  template <class Call>
  void guarded(std::size_t index, std::string_view when, Call&& call);

  const RunInfo run_;
  std::vector<Entry> sinks_;  // changes while the loop thread waits for it
  const std::function<void(std::string_view)> warn_;
  const std::size_t capacity_;
  std::vector<Usage> usage_;  // of the thread while it runs

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Record> queue_;
  std::function<void()> task_;       ///< to be done once the queue is empty; the loop thread waits for it
  std::condition_variable settled_;  ///< what the loop thread waits for is done
  bool busy_ = false;                ///< records are on their way to the sinks
  std::size_t waiting_ = 0;          // training records in the queue
  std::int64_t dropped_ = 0;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace trainyard::report
