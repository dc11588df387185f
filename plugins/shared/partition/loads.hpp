// The load of each cluster, and the cluster that has the least.
#pragma once

#include <bit>
#include <cstddef>
#include <limits>
#include <vector>

#include "graph.hpp"

namespace partition {

/// A tournament: each match is won by the lesser load, by the lower cluster where they are equal. Loads only grow, so
/// that one that grows changes the matches that its cluster had won, and no others.
class Loads {
 public:
  explicit Loads(std::size_t clusters)
      : leaves_(std::bit_ceil(clusters)), loads_(leaves_, std::numeric_limits<double>::infinity()) {
    std::fill_n(loads_.begin(), clusters, 0.0);
    winners_.resize(leaves_);
    for (std::size_t match = leaves_ - 1; match > 0; --match) winners_[match] = winner_of(match);
  }

  double operator[](std::size_t cluster) const { return loads_[cluster]; }
  Cluster least() const { return leaves_ == 1 ? Cluster{0} : winners_[1]; }
  double most() const { return most_; }

  void add(Cluster cluster, double load) {
    loads_[cluster] += load;
    most_ = std::max(most_, loads_[cluster]);
    for (std::size_t match = (leaves_ + cluster) / 2; match > 0 && winners_[match] == cluster; match /= 2)
      winners_[match] = winner_of(match);
  }

  /// Says which of two is to be taken: the lesser load, the lower cluster where they are equal.
  Cluster lesser(Cluster a, Cluster b) const {
    return loads_[b] < loads_[a] || (loads_[b] == loads_[a] && b < a) ? b : a;
  }

  std::size_t bytes() const { return loads_.size() * sizeof(double) + winners_.size() * sizeof(Cluster); }

 private:
  Cluster winner_of(std::size_t match) const {
    const auto at = [&](std::size_t place) {
      return place < leaves_ ? winners_[place] : static_cast<Cluster>(place - leaves_);
    };
    const Cluster left = at(2 * match), right = at(2 * match + 1);
    return loads_[right] < loads_[left] ? right : left;
  }

  std::size_t leaves_;
  std::vector<double> loads_;  ///< of clusters that there are not infinite
  std::vector<Cluster>
      winners_;  ///< of match i, which is between those of 2 i and 2 i + 1; from `leaves_` on clusters
  double most_ = 0.0;
};

}  // namespace partition
