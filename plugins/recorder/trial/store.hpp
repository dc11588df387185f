// The thread that writes records to the disk. Where it cannot, storing ends with one message, and the run
// goes on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/formats/append_file.hpp>
#include <trainyard/formats/trial_files.hpp>
#include <trainyard/host.hpp>

#include "plan.hpp"
#include "queue.hpp"

namespace trial {

using namespace trainyard;

/// What the plan says of the tensors of one record, kept for the thread.
using Wants = std::vector<Want>;

/// Calls come from the loop thread; `push` from any.
class Store {
 public:
  Store(std::string folder, const std::vector<SavedCollection>& collections, bool tensorboard,
        std::size_t most_records, Host& host);

  void start();
  void stop(std::chrono::milliseconds patience);

  /// `wants` in the order of the record's tensors. False where the queue is full.
  bool push(std::shared_ptr<const StepRecord> record, Wants wants);
  /// The trial goes on from a step: later ones are dropped from the disk.
  void cut(std::int64_t step);
  /// The run is over.
  void end();
  bool drain(std::chrono::milliseconds patience) { return queue_.drain(patience); }

  const std::string& folder() const { return folder_; }
  /// Records that were not written, for a disk that did not take them.
  std::int64_t lost() const { return lost_; }

 private:
  void work(const std::stop_token& stop);
  template <class Write>
  void attempt(Write&& write);
  TrialWriter& writer();
  void chart(const StepRecord& record, const Wants& wants);

  const std::string folder_;
  const std::vector<SavedCollection>& collections_;
  const bool tensorboard_;
  Host& host_;
  Queue<std::function<void()>> queue_;
  std::optional<TrialWriter> writer_;
  std::optional<AppendFile> charts_;
  bool broken_ = false;
  std::atomic<std::int64_t> lost_{0};
  std::shared_ptr<void> thread_;
};

}  // namespace trial
