// loss/1: computes a scalar from outputs and targets.
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

  /// Returns the mean over the `weight(batch)` items of the batch: a scalar float tensor, differentiable in
  /// `output`, [size, ...]. Throws ConfigError for sparse output that it does not take (Network::forward).
  virtual at::Tensor forward(const at::Tensor& output, const Batch& batch) const = 0;

  /// Returns the number of items that `forward` averages over: samples, or tokens that count. The host
  /// weights micro-batches with it, so that k batches of b equal one of k x b. Called on loader threads, with
  /// the batch on the CPU.
  virtual double weight(const Batch& batch) const { return static_cast<double>(batch.size()); }
};

}  // namespace trainyard
