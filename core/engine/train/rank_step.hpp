// The part of a step that several ranks make together: they sum up their gradients and losses, and agree on
// what the step ends with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/executor.hpp>

#include "core/engine/distributed/reduction.hpp"
#include "core/engine/train/loop_parts.hpp"
#include "core/engine/train/loss_meter.hpp"

namespace trainyard::train {

class RankStep {
 public:
  /// `parts` outlives it. On a single rank nothing is ever summed.
  explicit RankStep(LoopParts& parts) : parts_(parts) {}

  /// Returns true if each of several ranks has the whole batch and a part of the network (divides_network).
  bool in_parts() const { return parts_.world != nullptr && parts_.executor.plugin->divides_network(); }
  /// Throws if parts of the run need sums of gradients, and the executor makes none.
  void check_parts() const;

  /// Begins a step. `ends`: bits, behind those of Control, that the ranks agree upon.
  void begin(unsigned ends);
  /// Begins the sum of the gradients of a step; the loop gives at least one micro-batch, or none of a step
  /// that this rank leaves out. Has no effect where gradients are not summed.
  void start(const StepWork& work, double loss_scale);
  /// Returns true if gradients are summed over the ranks.
  bool sums() const { return reduction_ != nullptr; }
  /// Returns true if gradients may be exchanged during backward: no hook looks at this rank's before the sum.
  bool may_overlap() const;
  /// Has the gradients of the coming backward pass exchanged as they come.
  void collect() { reduction_->collect(); }
  /// Has the gradient of a parameter exchanged, unless tables lie in parts on the ranks, as parameters then
  /// have other numbers.
  void give(std::size_t parameter) {
    if (sharded_.empty()) reduction_->give(parameter);
  }
  /// Adds to this rank's loss of the step.
  void count(const at::Tensor& loss, double weight) { own_loss_.add(loss, weight); }
  /// Throws if tables are sharded: the other ranks wait for this one in each pass.
  void check_same_passes() const;

  /// Sums over the ranks up to the end of backward; `bits` are agreed upon, with those of begin().
  distributed::Tail sum_up(unsigned bits);
  /// The sum of a loss over the ranks, each times its weight.
  struct Loss {
    double sum = 0.0, weight = 0.0;
  };
  /// Adds up what the ranks' parts of the network report as loss, and agrees on `bits`: a collective.
  Loss share_losses(unsigned bits = 0);
  /// The same at the end of a step, with the bits of begin().
  Loss end_in_parts(unsigned bits) { return share_losses(bits | ends_); }

  /// Returns the bits that any rank set in this step; sets those of a step that this process has not made.
  unsigned agreed() const { return agreed_; }
  void set_agreed(unsigned agreed) { agreed_ = agreed; }

  // For rank recovery:
  /// Returns true from when all ranks have the gradients of a step, so that this rank cannot go back to
  /// before it, until end() ends the step.
  bool updating() const { return updating_; }
  bool has_gradients() const { return has_gradients_; }
  /// Returns true if this rank made the step because another rank had, and the others wait for this one.
  bool followed() const { return followed_; }
  void end() { updating_ = has_gradients_ = followed_ = false; }
  /// Drops all that is left of a step that is to be done again.
  void drop();

 private:
  void make_reduction();
  void agree_to_update();

  LoopParts& parts_;
  std::unique_ptr<distributed::Reduction> reduction_;
  std::vector<at::Tensor> sharded_;  ///< parameters of which it has its own rows, with their whole sum
  LossMeter own_loss_;               ///< this rank's, in this step
  double share_weight_ = 0.0, own_weight_ = 0.0;  ///< of the shares; of this rank's micro-batches
  bool skips_ = false;
  unsigned ends_ = 0, agreed_ = 0;
  bool has_gradients_ = false;  ///< all ranks have them, in this step
  bool updating_ = false, followed_ = false;
};

}  // namespace trainyard::train
