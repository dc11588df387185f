// A network that grows, as boosted trees do: gradient descent in the space of functions (Friedman, "Greedy Function
// Approximation: A Gradient Boosting Machine", Annals of Statistics 2001), in the second-order form of XGBoost (Chen and
// Guestrin, KDD 2016). Nothing in it is a parameter that an optimizer could update: an executor takes the derivatives of
// the loss by its outputs, and has it add a member to its ensemble. The library that makes the members is its own affair.
#pragma once

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("mixins/grows.hpp");

namespace trainyard {

/// A network implements it; executors find it by dynamic_cast, and the model declares `provides("grows")`. Loop thread.
///
/// The ensemble is a buffer of bytes, one-dimensional and empty before the first round: buffers() brings it up to date and
/// resizes its storage, while the handle stays. The host loads one of any length by resizing and writing it, so that the
/// network compares the tensor's version ahead of each use. A training that goes on from it comes to the same bits.
/// Without parameters a network still has a group of the optimizer, which has the learning rate.
class Grows {
 public:
  virtual ~Grows() = default;

  /// Returns the present outputs for a batch of the training, [size, ...], in floats and without gradients: the bits that
  /// forward() gives in an evaluation, from what the network has kept of earlier rounds where it can.
  virtual at::Tensor margins(const Batch& batch) = 0;

  /// Adds a member, whose outputs it multiplies by `rate`. `gradient` and `hessian` are for each output of margins() the
  /// first and the second derivative of the loss that the samples of the batch add up to, the second above 0.
  virtual void grow(const Batch& batch, const at::Tensor& gradient, const at::Tensor& hessian,
                    double rate) = 0;
};

}  // namespace trainyard
