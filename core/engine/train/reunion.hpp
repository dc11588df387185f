// How a run of several ranks goes on without one that was killed. The survivors keep what they have in memory
// and their clock; the step under way is done again by all of them, or is in the weights of all of them. A
// process in the place of the lost one takes from a survivor what is the same on every rank. What only the
// lost one had is the checkpointer's to bring back (ReplacesRanks).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <trainyard/error.hpp>

#include "core/engine/distributed/world.hpp"
#include "core/engine/train/run.hpp"
#include "core/engine/train/state_copy.hpp"

namespace trainyard::train {

/// Loop thread.
class Reunion {
 public:
  /// Of a run whose checkpointer replaces ranks. Both outlive it.
  Reunion(Run& run, distributed::World& world) : run_(run), world_(world) {}

  /// LoopHost::begin_step.
  void keep();
  /// LoopHost::update_as_others.
  void update_as_others(const Error& error);
  /// LoopHost::recover: true where all ranks are together again, and stand between two steps. Throws
  /// DistributedError where that cannot be.
  bool recover(const Error& error);
  /// On a process that takes the place of another: the state of the others.
  void join();

 private:
  using SteadyClock = std::chrono::steady_clock;

  /// What a rank says of itself at a meeting.
  struct Rank {
    bool newcomer = false;
    Position position;
    bool gradients = false;  ///< it has those of the step under way, of all ranks
    bool updating = false;   ///< half of a step is in its weights
    std::int64_t swaps = 0;
  };

  Rank own() const;
  void meet();
  void find_leader();
  void check() const;
  void come_together();
  void exchange();
  std::vector<int> those(bool newcomers) const;
  void tell();

  Run& run_;
  distributed::World& world_;
  std::unique_ptr<StateCopy> kept_;  ///< null: the step has not begun
  std::int64_t kept_at_ = -1;
  std::vector<Rank> ranks_;
  int leader_ = 0;  ///< the rank that has come furthest
  bool has_state_ = true;
  bool met_ = false;  ///< the ranks have met, and have not exchanged what they lack
  bool given_up_ = false;
  std::vector<int> replaced_;
  SteadyClock::time_point began_ = SteadyClock::now();
  std::int64_t last_step_ = -1;
  int losses_ = 0;  ///< since the last step
};

}  // namespace trainyard::train
