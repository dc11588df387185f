// The clusters that hold an edge of a node, for all nodes: in bits, or, with more than 64 clusters, in lists.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph.hpp"
#include "loads.hpp"

namespace partition {

inline constexpr Cluster no_cluster = 65535;

/// Has a word of bits for each node.
class BitReplicas {
 public:
  static constexpr std::size_t most = 64;

  BitReplicas(const Graph& graph, std::size_t clusters)
      : all_(clusters == most ? ~std::uint64_t{0} : (std::uint64_t{1} << clusters) - 1),
        sets_(graph.degrees.size(), 0) {}

  bool none(Node node) const { return sets_[node] == 0; }
  std::size_t count(Node node) const { return static_cast<std::size_t>(std::popcount(sets_[node])); }
  bool has(Node node, Cluster cluster) const { return (sets_[node] >> cluster & 1) != 0; }
  void add(Node node, Cluster cluster) { sets_[node] |= std::uint64_t{1} << cluster; }
  void prefetch(Node node) const { __builtin_prefetch(&sets_[node], 1); }

  /// Calls visit(cluster) for those of a node.
  template <class Visit>
  void each(Node node, const Visit& visit) const {
    each_of(sets_[node], visit);
  }
  /// Calls visit(cluster, holds_a, holds_b) for those that hold either.
  template <class Visit>
  void each_of_both(Node a, Node b, const Visit& visit) {
    each_of(sets_[a] | sets_[b], [&](Cluster cluster) { visit(cluster, has(a, cluster), has(b, cluster)); });
  }

  /// These return the least loaded cluster that holds a node, both of two, or either.
  Cluster least(Node node, const Loads& loads) const { return least_of(sets_[node], loads); }
  Cluster least_common(Node a, Node b, const Loads& loads) const {
    const std::uint64_t common = sets_[a] & sets_[b];
    return common == 0 ? no_cluster : least_of(common, loads);
  }
  Cluster least_of_both(Node a, Node b, const Loads& loads) const {
    return least_of(sets_[a] | sets_[b], loads);
  }

  std::size_t bytes() const { return sets_.size() * sizeof(std::uint64_t); }

 private:
  template <class Visit>
  static void each_of(std::uint64_t set, const Visit& visit) {
    for (; set != 0; set &= set - 1) visit(static_cast<Cluster>(std::countr_zero(set)));
  }
  Cluster least_of(std::uint64_t set, const Loads& loads) const {
    if (set == all_) return loads.least();
    auto best = static_cast<Cluster>(std::countr_zero(set));
    for (set &= set - 1; set != 0; set &= set - 1) {
      const auto cluster = static_cast<Cluster>(std::countr_zero(set));
      if (loads[cluster] < loads[best]) best = cluster;
    }
    return best;
  }

  std::uint64_t all_;
  std::vector<std::uint64_t> sets_;
};

/// Has a list for each node, with room for as many clusters as it has edges: 4 bytes an edge at most, all together.
class ListReplicas {
 public:
  ListReplicas(const Graph& graph, std::size_t clusters)
      : clusters_(clusters),
        begin_(graph.degrees.size() + 1),
        count_(graph.degrees.size(), 0),
        marks_(clusters, 0) {
    for (std::size_t i = 0; i < graph.degrees.size(); ++i)
      begin_[i + 1] =
          begin_[i] + static_cast<std::uint32_t>(std::min<std::size_t>(graph.degrees[i], clusters));
    lists_.resize(begin_.back());
  }

  bool none(Node node) const { return count_[node] == 0; }
  std::size_t count(Node node) const { return count_[node]; }
  bool has(Node node, Cluster cluster) const {
    const Cluster* const list = lists_.data() + begin_[node];
    return std::find(list, list + count_[node], cluster) != list + count_[node];
  }
  void add(Node node, Cluster cluster) {
    if (!has(node, cluster)) lists_[begin_[node] + count_[node]++] = cluster;
  }
  void prefetch(Node node) const {
    __builtin_prefetch(&count_[node], 1);
    __builtin_prefetch(&begin_[node]);
  }

  template <class Visit>
  void each(Node node, const Visit& visit) const {
    const Cluster* const list = lists_.data() + begin_[node];
    for (std::size_t i = 0; i < count_[node]; ++i) visit(list[i]);
  }
  template <class Visit>
  void each_of_both(Node a, Node b, const Visit& visit) {
    mark(b);
    each(a, [&](Cluster cluster) { visit(cluster, true, marks_[cluster] == mark_); });
    mark(a);
    each(b, [&](Cluster cluster) {
      if (marks_[cluster] != mark_) visit(cluster, false, true);
    });
  }

  Cluster least(Node node, const Loads& loads) const {
    if (count_[node] == clusters_) return loads.least();
    Cluster best = lists_[begin_[node]];
    each(node, [&](Cluster cluster) { best = loads.lesser(best, cluster); });
    return best;
  }
  Cluster least_common(Node a, Node b, const Loads& loads) {
    if (count_[a] == clusters_) return least(b, loads);
    if (count_[b] == clusters_) return least(a, loads);
    mark(a);
    Cluster best = no_cluster;
    each(b, [&](Cluster cluster) {
      if (marks_[cluster] == mark_) best = best == no_cluster ? cluster : loads.lesser(best, cluster);
    });
    return best;
  }
  Cluster least_of_both(Node a, Node b, const Loads& loads) const {
    return loads.lesser(least(a, loads), least(b, loads));
  }

  std::size_t bytes() const {
    return begin_.size() * sizeof(std::uint32_t) + (lists_.size() + count_.size()) * sizeof(Cluster) +
           marks_.size() * sizeof(std::uint32_t);
  }

 private:
  void mark(Node node) {
    if (++mark_ == 0) {  // of 32 bits, and an edge takes one
      std::fill(marks_.begin(), marks_.end(), 0);
      mark_ = 1;
    }
    each(node, [&](Cluster cluster) { marks_[cluster] = mark_; });
  }

  std::size_t clusters_;
  std::vector<std::uint32_t> begin_;
  std::vector<Cluster> lists_, count_;
  std::vector<std::uint32_t> marks_;  ///< by cluster: the last list that was marked and has it
  std::uint32_t mark_ = 0;
};

}  // namespace partition
