// loss/1: a scalar from outputs and targets.
#pragma once

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/contract.hpp>
#include <trainyard/plugin.hpp>

TRAINYARD_CONTRACT("loss.hpp");

namespace trainyard {

class Loss : public Plugin {
 public:
  static constexpr Kind kind{"loss", 1};

  /// Called once, before training. Throws ConfigError where the output shape (without batch dimension) does
  /// not fit the target.
  virtual void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const = 0;

  /// The mean over the `weight(batch)` items of the micro-batch: a scalar float tensor, differentiable in
  /// `output`, [size, ...]. One that takes no sparse output (Network::forward) throws ConfigError.
  virtual at::Tensor forward(const at::Tensor& output, const Batch& batch) const = 0;

  /// The number of items that `forward` averages over: samples, or tokens that count. The host weights
  /// micro-batches with it, so that k batches of b equal one of k x b. Called on loader threads, batch on the
  /// CPU.
  virtual double weight(const Batch& batch) const { return static_cast<double>(batch.size()); }
};

}  // namespace trainyard
