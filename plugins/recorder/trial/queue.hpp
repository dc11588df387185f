// From the loop to a thread of the recorder's: bounded, and never waited for by the loop.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>

#include <trainyard/trial.hpp>

namespace trial {

using namespace trainyard;

/// Records with values that wait for a thread take no more.
inline constexpr std::size_t most_bytes = std::size_t{256} << 20;
/// So many samples of the machine have room beside the records of steps, which would crowd them out where a
/// disk or a rule is slow. They are small, and come twice a second.
inline constexpr std::size_t most_samples = 120;

/// What a record takes while it waits.
inline std::size_t bytes_of(const StepRecord& record) {
  std::size_t bytes = 1;
  for (const TensorRecord& tensor : record.tensors)
    bytes += sizeof(TensorRecord) + (tensor.value.defined() ? tensor.value.nbytes() : 0);
  return bytes;
}

inline std::size_t room_beside(const StepRecord& record) {
  return record.mode == Mode::global ? most_samples : 0;
}

template <class Item>
class Queue {
 public:
  /// At most so many items, of so many bytes together.
  Queue(std::size_t most_items, std::size_t most_bytes) : most_items_(most_items), most_bytes_(most_bytes) {}

  /// False where it is full: the item is dropped. One of no bytes is an order, which there is room for. With
  /// `beside`, so many items more may wait, whatever their bytes.
  bool push(Item item, std::size_t bytes, std::size_t beside = 0) {
    {
      const std::lock_guard lock(mutex_);
      const bool large = beside == 0 && bytes_ + bytes > most_bytes_;
      if (bytes > 0 && (large || items_.size() >= most_items_ + beside)) return false;
      items_.emplace_back(std::move(item), bytes);
      bytes_ += bytes;
      if (!sleeping_) return true;
    }
    wake_.notify_one();
    return true;
  }

  /// The next item; nothing after a while without one, or when asked to stop. The item before is done.
  std::optional<Item> pop(const std::stop_token& stop, std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    working_ = false;
    if (items_.empty()) idle_.notify_all();
    sleeping_ = true;
    wake_.wait_for(lock, stop, patience, [&] { return !items_.empty(); });
    sleeping_ = false;
    if (items_.empty() || stop.stop_requested()) return std::nullopt;
    auto [item, bytes] = std::move(items_.front());
    items_.pop_front();
    bytes_ -= bytes;
    working_ = true;
    return std::move(item);
  }

  /// Waits until all is done that was pushed; false where it takes longer.
  bool drain(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return idle_.wait_for(lock, patience, [&] { return items_.empty() && !working_; });
  }

  /// Drops what waits; returns how many.
  std::size_t clear() {
    const std::lock_guard lock(mutex_);
    const std::size_t count = items_.size();
    items_.clear();
    bytes_ = 0;
    return count;
  }

 private:
  const std::size_t most_items_, most_bytes_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::condition_variable idle_;
  std::deque<std::pair<Item, std::size_t>> items_;
  std::size_t bytes_ = 0;
  bool sleeping_ = false, working_ = false;
};

}  // namespace trial
