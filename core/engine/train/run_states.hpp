// The state of a run: saved, restored, put back.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/checkpointer.hpp>
#include <trainyard/state.hpp>

#include "core/engine/train/live.hpp"
#include "core/engine/train/loop.hpp"
#include "core/engine/train/shards.hpp"
#include "core/engine/train/state_copy.hpp"

namespace trainyard::train {

class RunStates {
 public:
  /// `live` outlives the object.
  explicit RunStates(Live& live) : live_(live) {}

  /// Sets the text of the run file that the configuration came from, without swaps.
  void set_file(std::string resolved_toml) { file_ = std::move(resolved_toml); }
  /// Called when the network is built; null: each rank has the whole of it.
  void set_shards(std::unique_ptr<Shards> shards) { shards_ = std::move(shards); }
  /// Called when the loop is built; before that there are weights only. Both outlive the object.
  void set_loop(Loop& loop, LoopHost& host) {
    loop_ = &loop;
    host_ = &host;
  }

  /// Returns all that a resume needs, with tensors by handle. Called at a safe point.
  Snapshot snapshot() const;
  /// The same, with each rank's own states under "rank/1/...". All ranks call it together.
  Snapshot snapshot_of_ranks() const;
  /// Restores saved state, within Loop::fit. A plugin that the checkpoint does not know begins anew, one that
  /// was disabled stays so, and the state of one that is gone is ignored; `note` is told of each. Throws
  /// Error if a state does not fit.
  void restore(const std::vector<State>& states, const std::function<void(const std::string&)>& note);
  /// Puts the run back to when it saved these states; plugins disabled since are left out.
  void go_back(const std::vector<State>& states);

  // For rank recovery:
  /// Returns what a step changes before the weights: buffers, and states of plugins that are called by then.
  std::vector<State> early_states() const;
  /// Returns what is the same on all ranks; if `weights`, including weights and the optimizer's state, else
  /// with buffers in place of these.
  std::vector<State> common_states(bool weights) const;
  /// Returns this rank's own state, except rows of tables: the compressor's; empty if it keeps nothing.
  std::vector<State> own_states() const;
  /// Restores the own states of all ranks, given in their order.
  void take_own_states(const std::vector<std::vector<State>>& of_ranks);
  /// Replaces this rank's state by states returned above; weights are not replaced, only buffers.
  void take_over(const std::vector<State>& states);

  /// Waits until a copy in progress is done, so that the run may write what it copies.
  void settle();
  void set_copying(std::shared_ptr<StateCopy> copy) { copying_ = std::move(copy); }

  /// Returns null if each rank has the whole network.
  Shards* shards() const { return shards_.get(); }
  /// Returns parameters, then buffers, as in a file of weights; of sharded tables, this rank's rows.
  std::vector<NamedTensor> weights() const;
  /// Replaces the weights by others: see checkpoint::load_weights() and copy_weights().
  void load_weights(const std::string& path, const std::vector<std::string>& patterns = {});
  /// Throws NumericError if a parameter or a buffer is not finite, unless guard.nan = "off".
  void check_weights() const;
  /// Return SHA-256 over named parameters and buffers; over the optimizer's state. They wait for the device.
  std::string model_digest() const;
  std::string optimizer_digest() const;

 private:
  void leave_out(const State& run, const std::function<void(const std::string&)>& note);
  void drop_requests(const State& run);
  State buffers() const;
  State optimizer_state() const;

  Live& live_;
  std::string file_;
  Loop* loop_ = nullptr;
  LoopHost* host_ = nullptr;
  std::unique_ptr<Shards> shards_;
  std::shared_ptr<StateCopy> copying_;  ///< null: nothing is being copied
};

}  // namespace trainyard::train
