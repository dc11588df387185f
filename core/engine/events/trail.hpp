// The last events of a run, for later questions about how it got there.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include <trainyard/event.hpp>

namespace trainyard::events {

/// Written by the loop thread at every fire; read by any thread and by the handler of a fatal signal, which
/// may see a newer entry in place of the oldest.
class Trail {
 public:
  static constexpr std::uint32_t length = 100;  ///< number of entries that are kept
  struct Entry {
    Event event;
    std::int64_t step;
  };

  void add(Event event, std::int64_t step) noexcept {
    const std::uint32_t count = count_.load(std::memory_order_relaxed);
    entries_[count % capacity].store(step << 8 | static_cast<std::int64_t>(event), std::memory_order_relaxed);
    count_.store(count + 1, std::memory_order_relaxed);
  }

  /// Returns the number of all entries ever added, modulo 2^32.
  std::uint32_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  std::uint32_t size() const noexcept {
    const std::uint32_t count = count_.load(std::memory_order_relaxed);
    return count < length ? count : length;
  }
  /// Returns an entry by age; 0: the newest, size() - 1: the oldest.
  Entry back(std::uint32_t age) const noexcept {
    const std::uint32_t place = count_.load(std::memory_order_relaxed) - 1 - age;
    const std::int64_t entry = entries_[place % capacity].load(std::memory_order_relaxed);
    return {static_cast<Event>(entry & 0xff), entry >> 8};
  }

 private:
  static constexpr std::uint32_t capacity = 128;  // a power of two: the remainder is a mask, also after 2^32
  std::array<std::atomic<std::int64_t>, capacity> entries_{};
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace trainyard::events
