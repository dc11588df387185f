// The processes ("ranks") that train one model together, and what they can exchange.
//
// Every rank runs the same loop over the same state, with micro-batches of its own. All ranks of a group call
// the same collectives in the same order, with tensors of one shape and element type: bool, an integer of 8,
// 32 or 64 bits (not 16), half, bfloat16, float or double. All of them get the same result, to the bit.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>
#include <trainyard/error.hpp>

TRAINYARD_CONTRACT("ranks.hpp");

namespace trainyard {

/// Thrown where another rank failed, or cannot be reached: names it, and says what it said.
struct DistributedError : Error {
  explicit DistributedError(const std::string& message) : Error(ExitCode::distributed, message) {}
};

/// A collective under way, on threads of its own. Its tensors belong to it until wait() returns.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// Waits until it is done; on a GPU, until the current stream may use the tensors. Throws DistributedError.
  virtual void wait() = 0;
};

/// A group of processes. Tensors are dense and contiguous, on the run's device. One thread at a time.
class RankGroup {
 public:
  virtual ~RankGroup() = default;

  /// Returns the number of this process in the group, from 0.
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Replaces each element of `tensor` by the sum over the ranks.
  virtual std::unique_ptr<Exchange> all_reduce(const at::Tensor& tensor) = 0;
  /// Fills `all`, of size() times as many elements as `own`, with the `own` of all ranks, in their order.
  virtual std::unique_ptr<Exchange> all_gather(const at::Tensor& all, const at::Tensor& own) = 0;
  /// Sets `own` to the sum over the ranks of the rank()-th of the size() equal parts of `all`.
  virtual std::unique_ptr<Exchange> reduce_scatter(const at::Tensor& own, const at::Tensor& all) = 0;
  /// Replaces `tensor` by that of rank `root`.
  virtual std::unique_ptr<Exchange> broadcast(const at::Tensor& tensor, int root) = 0;
};

/// All ranks of the run.
class Ranks : public RankGroup {
 public:
  /// Returns the number of this process among the ranks of its machine, from 0.
  virtual int local_rank() const = 0;
  /// Returns how many ranks each machine has. Ranks of a machine follow each other.
  virtual int local_size() const = 0;

  /// Makes a group of some of the ranks, in this order. Every rank makes the same groups in the same order;
  /// null on one that is not among them.
  virtual std::unique_ptr<RankGroup> group(const std::vector<int>& ranks) = 0;
};

}  // namespace trainyard
