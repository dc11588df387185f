// Hands things on in their order, between stages of one thread or of two.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "spin.hpp"

namespace pipelined {

/// Thrown where the other end has failed.
struct Closed : std::runtime_error {
  Closed() : std::runtime_error("the other end of a channel has failed") {}
};

template <class T>
class Channel {
 public:
  /// Waits while it is full.
  void push(T item) {
    const auto ready = [&] { return closed_ || size_ < capacity; };
    spin(ready);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, ready);
    if (closed_) throw Closed();
    items_.push_back(std::move(item));
    size_ = items_.size();
    changed_.notify_all();
  }
  /// Waits while it is empty.
  T pop() {
    const auto ready = [&] { return closed_ || size_ > 0; };
    spin(ready);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, ready);
    if (closed_) throw Closed();
    T item = std::move(items_.front());
    items_.pop_front();
    size_ = items_.size();
    changed_.notify_all();
    return item;
  }
  /// Whoever waits, or comes, gets Closed.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  /// What is in it; while nobody uses it.
  const std::deque<T>& items() const { return items_; }

 private:
  /// In lock step a neighbour is one cycle ahead at most: what it hands on then, and what was there before.
  static constexpr std::size_t capacity = 2;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> items_;
  std::atomic<std::size_t> size_ = 0;  ///< of items, to be looked at without the mutex
  std::atomic<bool> closed_ = false;
};

}  // namespace pipelined
