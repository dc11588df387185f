// How a run of several ranks goes on without one that was killed. The survivors keep what they have in memory
// and their clock; the step under way is done again by all of them, or is in the weights of all of them. A
// process in the place of the lost one begins with what a survivor would save now, as a resume does with a
// checkpoint (Joined). What only the lost one had is the checkpointer's to bring back (ReplacesRanks).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <trainyard/error.hpp>

#include "core/engine/distributed/world.hpp"
#include "core/engine/train/meeting.hpp"
#include "core/engine/train/run.hpp"
#include "core/engine/train/state_copy.hpp"

namespace trainyard::train {

/// Loop thread.
class Reunion {
 public:
  /// Of a run whose checkpointer replaces ranks. Both outlive it. `facts`: Joined::facts.
  Reunion(Run& run, distributed::World& world, std::string facts)
      : run_(run), world_(world), facts_(std::move(facts)) {}

  /// LoopHost::begin_step.
  void keep();
  /// LoopHost::update_as_others.
  void update_as_others(const Error& error);
  /// LoopHost::recover: true where all ranks are together again, and stand between two steps. Throws
  /// DistributedError where that cannot be.
  bool recover(const Error& error);
  /// On a process that takes the place of another, once its run has the states: waits until all are ready.
  void join(const Joined& joined);

 private:
  using SteadyClock = std::chrono::steady_clock;

  Standing own() const;
  void check_replaceable() const;
  void meet();
  void come_together();
  void exchange();
  void tell();

  Run& run_;
  distributed::World& world_;
  const std::string facts_;
  std::unique_ptr<StateCopy> kept_;  ///< null: the step has not begun
  std::int64_t kept_at_ = -1;
  std::optional<Meeting> meeting_;  ///< the ranks have met, and have not exchanged what they lack
  bool given_up_ = false;
  std::vector<int> replaced_;
  std::vector<double> kept_back_;  ///< norm of what a compressor has of each rank; empty: it has nothing
  SteadyClock::time_point began_ = SteadyClock::now();
  std::int64_t last_step_ = -1;
  int losses_ = 0;  ///< since the last step
};

}  // namespace trainyard::train
