// Replaces plugins of a run while it trains.
#pragma once

#include <memory>
#include <vector>

#include "core/engine/swap/prepared_swap.hpp"
#include "core/engine/train/run.hpp"

namespace trainyard::train {

class Swaps {
 public:
  /// `run` outlives the object. Several objects may exist for one run.
  explicit Swaps(Run& run) : run_(run), live_(run.live()) {}

  /// Prepares swaps beside the run, as one: checks the resulting run file, loads the code, constructs and
  /// opens the plugins. One thread at a time, not during a commit. Throws Error; the run does not change.
  /// With `after` they are for the run as that swap would leave it, which outlives this one.
  std::unique_ptr<PreparedSwap> prepare(const std::vector<config::SwapRequest>& swaps,
                                        PreparedSwap* after = nullptr);
  /// Called between two steps, on the loop thread: hands the state over and publishes the new plugins. Throws
  /// Error if an old or a new plugin objects; the run is then as it was. From then on the swap holds the old
  /// plugins. Only the latest preparation may be committed. If `watched`, returns a copy of the state before
  /// the swap, perhaps still in progress: the run settles it before it writes what is copied.
  std::shared_ptr<StateCopy> commit(PreparedSwap& swap, bool watched = false);
  /// Undoes the newest commit that stands: the old plugins return. The caller restores the state.
  void take_back(PreparedSwap& swap);

  /// Tries [[swap]] of the run file before the run begins, as far as possible: each is prepared for the run
  /// as the earlier ones leave it and takes over the state, but nothing is committed. Throws ConfigError for
  /// the first that cannot be made.
  void rehearse();

 private:
  void open(PreparedSwap& swap);
  bool leaves_executor(PreparedSwap& swap);
  bool steady(PreparedSwap& swap, const State& state, const at::Tensor& tensor);
  void place_curve(PreparedSwap& swap, std::int64_t step);
  void place(PreparedSwap& swap);
  void exchange(PreparedSwap& swap);
  void exchange_plugins(PreparedSwap& swap);
  void come(ActivePlugin& plugin, ActivePlugin* from, config::Carry carry);
  static bool touches(PreparedSwap& swap, std::initializer_list<std::string_view> kinds);

  Run& run_;
  Live& live_;
};

}  // namespace trainyard::train
