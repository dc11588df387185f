// From nodes of the graph to their numbers in a batch. Both ways give the same numbers; clear() takes no time
// that grows with the graph.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace graph {

/// A place for each node of the graph, 4 bytes: one look into memory, and as many bytes for each thread.
class DirectMap {
 public:
  explicit DirectMap(std::int64_t nodes) : ids_(static_cast<std::size_t>(nodes), absent) {}

  /// `nodes`: those in it.
  void clear(std::span<const std::int64_t> nodes) {
    for (const std::int64_t node : nodes) ids_[static_cast<std::size_t>(node)] = absent;
  }
  /// The number of the node; `id`, where it had none.
  std::int32_t insert(std::int64_t node, std::int32_t id) {
    std::int32_t& known = ids_[static_cast<std::size_t>(node)];
    if (known == absent) known = id;
    return known;
  }
  void prefetch(std::int64_t node) const { __builtin_prefetch(&ids_[static_cast<std::size_t>(node)], 1); }

 private:
  static constexpr std::int32_t absent = -1;
  std::vector<std::int32_t> ids_;
};

/// A hash table with open addressing, at most half full: memory for the nodes of a batch alone.
class FlatMap {
 public:
  explicit FlatMap(std::int64_t /*nodes*/ = 0) : places_(16) {}

  void clear(std::span<const std::int64_t> /*nodes*/ = {}) {
    size_ = 0;
    if (++round_ != 0) return;
    for (Entry& place : places_) place.round = 0;
    round_ = 1;
  }
  std::int32_t insert(std::int64_t node, std::int32_t id) {
    Entry& place = find(node);
    if (place.round == round_) return place.id;
    place = {node, id, round_};
    if (++size_ * 2 > places_.size()) grow();
    return id;
  }
  void prefetch(std::int64_t node) const { __builtin_prefetch(&places_[home(node)], 1); }

 private:
  struct Entry {
    std::int64_t node = 0;
    std::int32_t id = 0;
    std::uint32_t round = 0;  ///< another than that of the map: nothing is here
  };

  /// Fibonacci hashing (Knuth, "The Art of Computer Programming", volume 3, section 6.4).
  std::size_t home(std::int64_t node) const {
    return static_cast<std::size_t>(static_cast<std::uint64_t>(node) * 0x9E3779B97F4A7C15 >>
                                    (64 - std::countr_zero(places_.size())));
  }
  Entry& find(std::int64_t node) {
    std::size_t at = home(node);
    while (places_[at].round == round_ && places_[at].node != node) at = (at + 1) & (places_.size() - 1);
    return places_[at];
  }
  void grow() {
    std::vector<Entry> smaller(places_.size() * 2);
    smaller.swap(places_);
    for (const Entry& place : smaller)
      if (place.round == round_) find(place.node) = place;
  }

  std::vector<Entry> places_;  ///< a power of two
  std::size_t size_ = 0;
  std::uint32_t round_ = 1;
};

}  // namespace graph
