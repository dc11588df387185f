// Hands records to a run's sinks on a thread of their own, so that a slow disk never delays the loop.
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
    std::string id;                              ///< id of the sink in the run file, for messages
    Sink* sink = nullptr;                        ///< outlives this object; null: on another rank
    std::int64_t interval;                       ///< steps between its training records, at least 1
    std::string slot = "logging.sinks", plugin;  ///< place in the run file, and name, for a report of a crash
    // Written by the thread while it runs:
    double seconds = 0.0;  ///< that the sink took
    std::string error;     ///< why it was switched off; empty: it was not
  };

  /// Opens the sinks on the thread. `warn` gets a line for each sink that is switched off and one about
  /// dropped records, on the sinks' thread. At most `capacity` training records wait in the queue.
  SinkThread(RunInfo run, std::vector<Entry> sinks, std::function<void(std::string_view)> warn,
             std::size_t capacity = 1024);
  ~SinkThread() { close(); }
  SinkThread(const SinkThread&) = delete;
  SinkThread& operator=(const SinkThread&) = delete;

  /// Returns true if any sink takes a training record of this step (counted from 1): at multiples of its
  /// interval and at the run's last step. Any thread, no lock.
  bool due(std::int64_t step) const;

  /// Queues a record; never waits for a sink. A training record is dropped, and counted, while the queue is
  /// full; other records are always kept.
  void push(Record record);

  /// Goes on with other sinks, if they are others: those that go get what was pushed so far and are closed,
  /// new ones are opened as in a run that is resumed at `step`. Waits until that is done. Loop thread.
  void exchange(std::vector<Entry> sinks, std::int64_t step);

  /// Called when the run has gone back to `step`: the sinks get what was pushed so far, are closed, and
  /// opened as in a run resumed there, so that no step is recorded twice. Waits until that is done. Loop
  /// thread.
  void go_back(std::int64_t step);

  /// Waits until the sinks have what was pushed so far. Loop thread.
  void flush();

  /// Hands over the queue, closes the sinks and ends the thread. May be called again.
  void close();

  std::int64_t dropped() const;
  /// Valid after close().
  const std::vector<Entry>& usage() const { return sinks_; }

 private:
  void work();
  void between_records(std::function<void()> task);
  void reopen(std::size_t index, std::int64_t step);
  bool takes(const Entry& entry, std::int64_t step) const;
  template <class Call>
  void guarded(std::size_t index, std::string_view when, Call&& call);

  const RunInfo run_;
  std::vector<Entry> sinks_;  // changed while the loop thread waits
  const std::function<void(std::string_view)> warn_;
  const std::size_t capacity_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Record> queue_;
  std::function<void()> task_;       ///< runs once the queue is empty; the loop thread waits for it
  std::condition_variable settled_;  ///< tells the loop thread that what it waits for is done
  bool busy_ = false;                ///< records are being handed to the sinks
  std::size_t waiting_ = 0;          // training records in the queue
  std::int64_t dropped_ = 0;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace trainyard::report
