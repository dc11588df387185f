// Rank recovery: a run of several ranks goes on without one that was killed. The survivors keep their memory
// and their clock; the step under way is repeated by all of them, or is in the weights of all. A process in
// the place of the lost rank begins with what a survivor would save now, as a resume does with a checkpoint
// (Joined). The checkpointer restores what only the lost rank had (ReplacesRanks).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <trainyard/error.hpp>

#include "core/engine/distributed/world.hpp"
#include "core/engine/recovery/rendezvous.hpp"
#include "core/engine/train/run.hpp"
#include "core/engine/train/state_copy.hpp"

namespace trainyard::train {

/// Used on the loop thread.
class RankRecovery {
 public:
  /// The run's checkpointer replaces ranks. `run` and `world` outlive this. `facts`: see Joined::facts.
  RankRecovery(Run& run, distributed::World& world, std::string facts)
      : run_(run), world_(world), facts_(std::move(facts)) {}

  /// Implements LoopHost::begin_step.
  void keep_state();
  /// Implements LoopHost::update_as_others.
  void update_as_others(const Error& error);
  /// Implements LoopHost::recover: returns true if all ranks are together again, between two steps. Throws
  /// DistributedError if that cannot be.
  bool recover(const Error& error);
  /// Called in a process that replaces a rank, once its run has the states: waits until all ranks are ready.
  void join(const Joined& joined);

 private:
  using SteadyClock = std::chrono::steady_clock;

  RankProgress own() const;
  void check_replaceable() const;
  void meet_again();
  void share_states();
  void send_missing_states();
  void announce();

  Run& run_;
  distributed::World& world_;
  const std::string facts_;
  std::unique_ptr<StateCopy> kept_;  ///< null: the step has not begun
  std::int64_t kept_at_ = -1;
  std::optional<Rendezvous> rendezvous_;  ///< set if the ranks have met, but not exchanged what they lack
  bool given_up_ = false;
  std::vector<int> replaced_;
  std::vector<double> kept_back_;  ///< norm of what each rank's compressor kept back; empty: nothing
  SteadyClock::time_point began_ = SteadyClock::now();
  std::int64_t last_step_ = -1;
  int losses_ = 0;  ///< since the last step
};

}  // namespace trainyard::train
