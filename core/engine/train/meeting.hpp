// What the ranks of a run say of themselves when they come together again because one was lost, and what follows
// from it: who has come furthest, and who lacks what that one has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <trainyard/state.hpp>

#include "core/engine/distributed/world.hpp"
#include "core/engine/train/loop.hpp"

namespace trainyard::train {

/// What a rank says.
struct Standing {
  bool newcomer = false;  ///< it has nothing of the run
  Position position;
  bool gradients = false;  ///< it has those of the step under way, of all ranks
  bool updating = false;   ///< half of a step is in its weights
  std::int64_t swaps = 0;  ///< made
  std::int64_t due = 0;    ///< swaps that are planned
};

class Meeting {
 public:
  /// Waits for all ranks, old and new. Throws DistributedError where they do not come, or cannot go on from
  /// there.
  Meeting(distributed::World& world, const Standing& own);

  /// The first of those that have come furthest.
  int leader() const { return leader_; }
  const Position& position() const { return standing(leader_).position; }
  /// Ascending.
  const std::vector<int>& newcomers() const { return newcomers_; }
  /// The leader, and the ranks that lack something of its state: those that are new, or those that are behind.
  std::vector<int> lacking(bool newcomers) const;

  /// "rank 2 was lost at step 7"
  std::string text() const;

 private:
  const Standing& standing(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  void find_leader();
  void check() const;

  std::vector<Standing> ranks_;
  std::vector<int> newcomers_;
  int leader_ = -1;
};

/// What a process in the place of a lost one gets from the others.
struct Joined {
  std::vector<State> states;  ///< as in a checkpoint
  std::string facts;          ///< about the data that the others read: Training::compare_data
  Position position;
  std::vector<int> replaced;  ///< itself, and those that were lost with it
};

/// Of such a process, ahead of everything else: it calls no collective before. Again where another one is lost
/// meanwhile.
Joined join(distributed::World& world);

/// "rank 2", "ranks 0, 2"
std::string list_of(const std::vector<int>& ranks);

}  // namespace trainyard::train
