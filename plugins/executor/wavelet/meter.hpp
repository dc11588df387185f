// Counts the bytes that the threads of waves take on the CPU: an allocator in front of LibTorch's, while a Meter
// is open. A block that outlives the meter, or is freed on another thread, comes off the count that it was put on.
#pragma once

#include <cstdint>
#include <vector>

namespace wavelet {

inline constexpr int most_waves = 2;

/// One in a process at a time. Loop thread, where nothing else is said.
class Meter {
 public:
  /// A block was taken, or, where `bytes` is negative, let go.
  struct Change {
    std::int64_t nanoseconds;  ///< of the steady clock
    std::int64_t bytes;
    int wave;
  };

  /// Throws PluginError where LibTorch does not take another allocator.
  Meter();
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  /// What the calling thread takes is the wave's from now on.
  static void count_for(int wave);

  // Any thread.

  static std::int64_t bytes();          ///< of all waves, now
  static std::int64_t bytes(int wave);  ///< now
  /// The most that a wave had since the last call. The wave's own thread.
  static std::int64_t take_high(int wave);

  /// The most that all waves had together since the last call, while no wave runs.
  static std::int64_t take_peak();

  /// Keeps every change, from now on or no more; while no wave runs.
  static void record(bool on);
  static std::vector<Change> take_changes();
};

}  // namespace wavelet
