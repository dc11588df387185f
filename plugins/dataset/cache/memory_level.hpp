// Decoded samples in memory, within a budget.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>

#include <trainyard/staged_dataset.hpp>

namespace cache {

/// Samples by index. They are evicted by shards, blocks of neighbouring indices: the one that was used least
/// recently first. Shards that come first are pinned, as long as a share of the budget has room for them
/// whole, and stay: a pass over more samples than fit finds these at least, where by the rule alone it would
/// find none. Any thread.
class MemoryLevel {
 public:
  struct Limits {
    std::int64_t budget = 0;  ///< bytes, those that the program needs beside the numbers of a sample included
    double pinned = 0.5;      ///< share of the budget
    std::int64_t shard = 64;  ///< samples
  };
  struct Usage {
    std::int64_t bytes = 0, samples = 0, pinned = 0;  ///< pinned: samples, too
  };

  explicit MemoryLevel(const Limits& limits) : limits_(limits) {}

  /// The same tensors that were put there.
  std::optional<trainyard::Sample> get(std::int64_t index);
  /// Makes room by evicting others; the sample is let go where that is not enough, or where it is there.
  void put(std::int64_t index, const trainyard::Sample& sample);
  Usage usage() const;

 private:
  struct Shard {
    std::unordered_map<std::int64_t, trainyard::Sample> samples;
    std::int64_t bytes = 0;
    bool pinned = false;
    std::list<std::int64_t>::iterator place;  ///< in recent_, unless it is pinned
  };
  using Shards = std::unordered_map<std::int64_t, Shard>;

  Shard& shard_for(std::int64_t number, std::int64_t bytes);
  bool make_room(std::int64_t bytes, std::int64_t spared);

  const Limits limits_;
  mutable std::mutex mutex_;
  Shards shards_;
  std::list<std::int64_t> recent_;  ///< shards that may go, those used last in front
  std::int64_t reserved_ = 0;       ///< bytes that pinned shards will have once they are whole
  Usage usage_;
};

}  // namespace cache
