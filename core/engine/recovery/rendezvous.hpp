// Rank recovery: what the ranks of a run tell each other when they come together again because one was lost,
// and what follows: which rank has come furthest, and which ranks lack something of its state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <trainyard/state.hpp>

#include "core/engine/distributed/world.hpp"
#include "core/engine/train/loop.hpp"

namespace trainyard::train {

/// The facts that a rank tells the others.
struct RankProgress {
  bool newcomer = false;  ///< it has no state of the run
  Position position;
  bool gradients = false;  ///< it has all ranks' gradients of the step under way
  bool updating = false;   ///< its weights contain half of a step
  std::int64_t swaps = 0;  ///< number of swaps made
  std::int64_t due = 0;    ///< number of swaps planned
};

class Rendezvous {
 public:
  /// Waits for all ranks, old and new. Throws DistributedError if they do not come, or cannot go on from
  /// there.
  Rendezvous(distributed::World& world, const RankProgress& own);

  /// Returns the first of the ranks that have come furthest.
  int leader() const { return leader_; }
  const Position& position() const { return progress(leader_).position; }
  /// Returns the new ranks in ascending order.
  const std::vector<int>& newcomers() const { return newcomers_; }
  /// Returns the leader and the ranks that lack its state: if `newcomers` the new ones, else those behind.
  std::vector<int> lacking(bool newcomers) const;

  /// Returns a text such as "rank 2 was lost at step 7".
  std::string text() const;

 private:
  const RankProgress& progress(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  void find_leader();
  void check() const;

  std::vector<RankProgress> ranks_;
  std::vector<int> newcomers_;
  int leader_ = -1;
};

/// The state that a process in the place of a lost rank gets from the others.
struct Joined {
  std::vector<State> states;  ///< as in a checkpoint
  std::string facts;          ///< about the data that the others read: Training::compare_data
  Position position;
  std::vector<int> replaced;  ///< itself, and those that were lost with it
};

/// Called first in such a process, before any collective. It tries again if another rank is lost meanwhile.
Joined join(distributed::World& world);

/// Returns a text such as "rank 2" or "ranks 0, 2".
std::string list_of(const std::vector<int>& ranks);

}  // namespace trainyard::train
