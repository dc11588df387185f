// Replaces plugins of a run while it is going.
#pragma once

#include <memory>
#include <vector>

#include "core/engine/swap/prepared_swap.hpp"
#include "core/engine/train/run.hpp"

namespace trainyard::train {

class Swaps {
 public:
  /// `run` outlives the object. Several may stand on one run.
  explicit Swaps(Run& run) : run_(run), live_(run.live()) {}

  /// Makes swaps ready beside the run, as one: checks what they make of it as a run file, loads the code,
  /// constructs and opens the plugins. One thread at a time, not while a commit runs. Throws Error; the run
  /// does not notice. `after`: for the run as that one would leave it, which outlives this one.
  std::unique_ptr<PreparedSwap> prepare(const std::vector<config::SwapRequest>& swaps,
                                        PreparedSwap* after = nullptr);
  /// Between two steps, on the loop thread: hands the state over and publishes the new plugins. Throws Error
  /// where an old or a new plugin objects; the run is then as it was. The swap holds the old ones from then
  /// on. Only the latest preparation may be committed. `watched`: gives what the run was before it, a copy
  /// that may be under way still: the run settles it before it writes what is copied.
  std::shared_ptr<StateCopy> commit(PreparedSwap& swap, bool watched = false);
  /// The newest of the commits that stand is undone: the old plugins return. State is the caller's to
  /// restore.
  void take_back(PreparedSwap& swap);

  /// Tries [[swap]] of the run file on the run before it begins, as far as that can be told: each is prepared
  /// for the run as those before it leave it, takes the state over, and nothing is committed. Throws
  /// ConfigError for the first that cannot be made.
  void rehearse();

 private:
  /// Swaps that come together, at the safe point of a step.
  struct Planned {
    std::int64_t step;
    std::vector<config::SwapRequest> swaps;
  };
  std::vector<Planned> plan() const;
  void open(PreparedSwap& swap);
  bool leaves_executor(PreparedSwap& swap);
  bool steady(PreparedSwap& swap, const State& state, const at::Tensor& tensor);
  void place_curve(PreparedSwap& swap, std::int64_t step);
  void exchange(PreparedSwap& swap);
  /// In the place of a part of the swap: who goes with it, and who has come once it is made.
  ActivePlugin& going(const PreparedSwap& swap, std::size_t part) {
    return live_.layer.plugins[swap.parts_[part].place];
  }

  Run& run_;
  Live& live_;
};

}  // namespace trainyard::train
