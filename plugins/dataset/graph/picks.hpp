// Neighbours drawn from a row: k of d positions without replacement, each subset equally often (Floyd's
// algorithm; Bentley, "Programming pearls: a sample of brilliance", CACM 30(9), 1987).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <trainyard/random.hpp>

#include "id_map.hpp"

namespace graph {

/// Of a batch.
using Key = std::array<std::uint32_t, 2>;

/// The random numbers of one node at one hop of one batch: Philox whose counter is node and hop, so that they
/// depend neither on the thread nor on what else is in the batch.
class Draws {
 public:
  Draws(Key key, std::int64_t node, std::uint32_t hop)
      : key_(key),
        counter_{static_cast<std::uint32_t>(node),
                 static_cast<std::uint32_t>(static_cast<std::uint64_t>(node) >> 32), hop, 0} {}

  /// In [0, bound), bound > 0, each equally often (Lemire, "Fast random integer generation in an interval",
  /// 2019, with its rejection); from 2^32 on none is favoured by more than bound / 2^64.
  std::uint64_t below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    if (bound > std::numeric_limits<std::uint32_t>::max()) {
      const std::uint64_t high = word();
      return static_cast<std::uint64_t>(Wide{high << 32 | word()} * bound >> 64);
    }
    std::uint64_t product = std::uint64_t{word()} * bound;
    if (static_cast<std::uint32_t>(product) < bound) {
      const auto narrow = static_cast<std::uint32_t>(bound);
      const std::uint32_t uneven = (0u - narrow) % narrow;  // 2^32 mod bound
      while (static_cast<std::uint32_t>(product) < uneven) product = std::uint64_t{word()} * bound;
    }
    return product >> 32;
  }

 private:
  std::uint32_t word() {
    if (next_ == words_.size()) {
      words_ = trainyard::philox(counter_, key_);
      ++counter_[3];
      next_ = 0;
    }
    return words_[next_++];
  }

  Key key_;
  std::array<std::uint32_t, 4> counter_, words_{};
  std::size_t next_ = 4;
};

/// Which positions of a row are taken. For few picks a scan of them is quicker than any hash.
class PickSet {
 public:
  void clear(std::int64_t /*degree*/, std::int64_t picks) {
    scanned_ = picks <= static_cast<std::int64_t>(few_.size());
    count_ = 0;
    if (!scanned_) many_.clear();
  }
  /// False where it is there already.
  bool add(std::int64_t position) {
    if (!scanned_) {
      const bool added = many_.insert(position, count_) == count_;
      count_ += added ? 1 : 0;
      return added;
    }
    for (std::int32_t i = 0; i < count_; ++i)
      if (few_[static_cast<std::size_t>(i)] == position) return false;
    few_[static_cast<std::size_t>(count_++)] = position;
    return true;
  }

 private:
  std::array<std::int64_t, 64> few_;
  FlatMap many_;
  std::int32_t count_ = 0;
  bool scanned_ = true;
};

/// Calls take(position) for `picks` different ones of [0, degree), picks <= degree.
template <class Set, class Take>
void pick_distinct(std::int64_t degree, std::int64_t picks, Draws& draws, Set& set, const Take& take) {
  set.clear(degree, picks);
  for (std::int64_t last = degree - picks; last < degree; ++last) {
    // `last` itself is among those drawn from, else the end of the row would come too rarely.
    auto position = static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(last) + 1));
    if (!set.add(position)) {
      position = last;
      set.add(position);
    }
    take(position);
  }
}

}  // namespace graph
