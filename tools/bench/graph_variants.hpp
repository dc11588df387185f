// Other ways to make the parts of a sampler of neighbourhoods than the one that the dataset `graph` has:
// rivals of the bench, which all draw the same edges.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "plugins/dataset/graph/neighbours.hpp"

namespace trainyard::bench {

using graph::Hop;
using graph::NodeList;

// Numbers of nodes.

class StlMap {
 public:
  explicit StlMap(std::int64_t /*nodes*/) {}
  void clear(std::span<const std::int64_t> /*nodes*/) { ids_.clear(); }
  std::int32_t insert(std::int64_t node, std::int32_t id) { return ids_.try_emplace(node, id).first->second; }
  void prefetch(std::int64_t /*node*/) const {}

 private:
  std::unordered_map<std::int64_t, std::int32_t> ids_;
};

/// All edges of a hop at once: their sources are sorted, and looked up by bisection.
class SortedMap {
 public:
  explicit SortedMap(std::int64_t /*nodes*/) {}
  void clear(std::span<const std::int64_t> /*nodes*/) { known_.clear(); }
  /// Of seeds; the first of equal ones counts.
  std::int32_t insert(std::int64_t node, std::int32_t id) {
    known_.emplace_back(node, id);
    return id;
  }
  void relabel(std::span<std::int64_t> col, NodeList& nodes) {
    std::stable_sort(known_.begin(), known_.end(), by_node);
    known_.erase(
        std::unique(known_.begin(), known_.end(), [](auto& a, auto& b) { return a.first == b.first; }),
        known_.end());
    std::vector<std::int64_t> found(col.begin(), col.end());
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    const auto before = static_cast<std::ptrdiff_t>(known_.size());
    for (auto known = known_.begin(); const std::int64_t node : found) {
      while (known != known_.begin() + before && known->first < node) ++known;
      if (known != known_.begin() + before && known->first == node) continue;
      const auto place = known - known_.begin();
      known_.emplace_back(node, static_cast<std::int32_t>(nodes.size()));
      known = known_.begin() + place;
      nodes.add(node);
    }
    std::inplace_merge(known_.begin(), known_.begin() + before, known_.end(), by_node);
    for (std::int64_t& node : col)
      node = std::lower_bound(known_.begin(), known_.end(), std::pair(node, 0), by_node)->second;
  }

 private:
  using Known = std::pair<std::int64_t, std::int32_t>;
  static bool by_node(const Known& a, const Known& b) { return a.first < b.first; }
  std::vector<Known> known_;
};

// Positions that are taken.

class StlSet {
 public:
  void clear(std::int64_t /*degree*/, std::int64_t /*picks*/) { taken_.clear(); }
  bool add(std::int64_t position) { return taken_.insert(position).second; }

 private:
  std::unordered_set<std::int64_t> taken_;
};

class Bitmap {
 public:
  void clear(std::int64_t degree, std::int64_t /*picks*/) {
    for (const std::int64_t position : taken_) words_[static_cast<std::size_t>(position / 64)] = 0;
    taken_.clear();
    const auto needed = static_cast<std::size_t>(degree / 64 + 1);
    if (words_.size() < needed) words_.resize(needed);
  }
  bool add(std::int64_t position) {
    std::uint64_t& word = words_[static_cast<std::size_t>(position / 64)];
    const std::uint64_t bit = std::uint64_t{1} << position % 64;
    if ((word & bit) != 0) return false;
    word |= bit;
    taken_.push_back(position);
    return true;
  }

 private:
  std::vector<std::uint64_t> words_;
  std::vector<std::int64_t> taken_;
};

// Loops.

/// Edge by edge (`one_pass`), or all edges of the hop and then all numbers; into the block (`flat`), or into
/// a vector for each target first.
template <class Set, bool one_pass, bool flat>
class PlainLoops {
 public:
  template <class Col, class Ids>
  void operator()(const Hop<Col>& hop, Ids& ids, NodeList& nodes) {
    constexpr bool later = requires(std::span<std::int64_t> col) {
      ids.relabel(col, nodes);
    };
    const auto number = [&](std::int64_t edge) {
      const std::int64_t source = hop.sources[edge];
      if constexpr (later)
        return source;
      else
        return graph::number_of(source, ids, nodes);
    };
    std::vector<std::vector<std::int64_t>> edges(flat ? 0 : hop.targets.size()),
        cols(flat ? 0 : hop.targets.size());
    const auto size = [&](std::size_t target) { return hop.rowptr[target + 1] - hop.rowptr[target]; };
    /// Where the edges of a target are written first, and the numbers of their sources.
    const auto room = [&](std::size_t target) {
      return flat ? std::pair(hop.edge + hop.rowptr[target], hop.col + hop.rowptr[target])
                  : std::pair(edges[target].data(), cols[target].data());
    };
    const auto number_all = [&](std::size_t target) {
      const auto [edge, col] = room(target);
      for (std::int64_t i = 0; i < size(target); ++i) col[i] = number(edge[i]);
    };
    for (std::size_t target = 0; target < hop.targets.size(); ++target) {
      if constexpr (!flat) {
        edges[target].resize(static_cast<std::size_t>(size(target)));
        cols[target].resize(static_cast<std::size_t>(size(target)));
      }
      hop.pick(target, set_, room(target).first);
      if (one_pass) number_all(target);
    }
    for (std::size_t target = 0; !one_pass && target < hop.targets.size(); ++target) number_all(target);
    for (std::size_t target = 0; target < edges.size(); ++target) {
      std::copy(edges[target].begin(), edges[target].end(), hop.edge + hop.rowptr[target]);
      std::copy(cols[target].begin(), cols[target].end(), hop.col + hop.rowptr[target]);
    }
    if constexpr (later)
      ids.relabel({hop.col, static_cast<std::size_t>(hop.rowptr[hop.targets.size()])}, nodes);
  }

 private:
  Set set_;
};

/// Two passes into the block are those of the dataset where numbers can be given edge by edge.
template <class Ids, class Set, bool one_pass, bool flat>
using Loops = std::conditional_t<flat && !one_pass && !std::is_same_v<Ids, SortedMap>, graph::Tiles<Set>,
                                 PlainLoops<Set, one_pass, flat>>;

}  // namespace trainyard::bench
