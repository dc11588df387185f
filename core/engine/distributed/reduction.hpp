// Sums the gradients over the ranks while backward is still running. The last bucket also carries what the
// ranks agree upon at every step, which so costs no exchange of its own.
//
// Parameters lie in buckets, the last of the network first, which is about the order in which backward
// completes them. A bucket leaves as soon as it and those before it are complete. Li et al., "PyTorch
// Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, section 3.2. A large gradient
// is summed where it lies: copying it into a bucket would cost more than an exchange of its own.
//
// Ranks of several machines sum short buckets by nodes, as messages are the cost there (helpers/nodes.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/compressor.hpp>
#include <trainyard/helpers/nodes.hpp>
#include <trainyard/named_tensor.hpp>
#include <trainyard/ranks.hpp>

namespace trainyard::distributed {

/// The values of this rank before finish(), of all ranks together after it.
struct Tail {
  double loss = 0.0;         ///< sum of the losses, each times its weight
  double counted = 0.0;      ///< the sum of those weights
  double weight = 0.0;       ///< weight of the batch whose gradients these are
  std::int64_t skipped = 0;  ///< ranks that leave the whole step out
  std::uint32_t bits = 0;    ///< requests: what one rank asks for, all do; 24 bits at most
};

/// The parameters of each bucket, in the order in which buckets leave.
struct Layout {
  struct Bucket {
    std::vector<std::size_t> parameters;  ///< their numbers
    BucketPlan plan;
    bool compressed = false;  ///< the compressor sums it
    bool in_place = false;    ///< holds one parameter, whose gradient is the bucket
  };
  std::vector<Bucket> buckets;  ///< the last one is neither compressed nor in place
};

/// `compressor` may be null. `bucket_bytes` bounds each bucket, unless one parameter is larger.
Layout make_layout(const std::vector<NamedTensor>& parameters, std::int64_t bucket_bytes,
                   const Compressor* compressor);

class Reduction {
 public:
  /// `parameters` are in the network's order; their gradients are float, or double as they are. All ranks
  /// pass the same and construct this at the same point. `compressor` is that of the layout, opened for it.
  /// `settle` waits for exchanges on a device, before the tail is read.
  Reduction(Ranks& ranks, const std::vector<NamedTensor>& parameters, Layout layout, Compressor* compressor,
            std::function<void()> settle = {});
  ~Reduction();
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  const Compressor* compressor() const { return compressor_; }

  /// Begins a step of the run, or repeats it. `loss_scale` is the scale of its gradients; a compressor, which
  /// keeps some of them for other steps, gets them without it.
  void start(std::int64_t step, double loss_scale = 1.0) {
    step_ = step;
    loss_scale_ = loss_scale;
  }
  /// Says that the next backward is the last of the step: buckets leave while it runs. Without this call they
  /// leave at finish().
  void collect() { collecting_ = true; }
  /// Says that a gradient is complete, whatever backward is doing; one call at a time, on any thread.
  void give(std::size_t parameter);
  /// Makes every gradient the sum over the ranks, times `weight` over the weight in the tail; one that no
  /// rank has stays undefined. Gradients not summed in place lie in their bucket until the next step.
  Tail finish(const Tail& own, double weight);

 private:
  class Hook;
  struct Bucket {
    at::Tensor flat;                ///< with the tail, in the last bucket; the gradient itself, if in place
    at::Tensor gradients;           ///< `flat` without the tail
    std::vector<at::Tensor> views;  ///< one per parameter
    std::size_t missing = 0;
    std::optional<SumByNodes> by_nodes;
    std::unique_ptr<Exchange> exchange;  ///< set once the bucket has left
  };
  struct InBucket {
    std::size_t bucket, slot;
  };

  void make_nodes();
  void ready(std::size_t parameter);
  void put(std::size_t parameter);
  void leave();
  void write(const Tail& own);
  Tail read() const;
  at::Tensor tail() const;

  Ranks& ranks_;
  const Layout layout_;
  Compressor* const compressor_;
  const std::function<void()> settle_;
  std::vector<at::Tensor> parameters_;
  std::vector<InBucket> places_;                 ///< by parameter
  std::unique_ptr<RankGroup> within_, between_;  ///< nodes; null if no bucket is summed by nodes
  std::vector<Bucket> buckets_;
  std::vector<bool> put_;  ///< by parameter: its gradient is in the bucket
  std::int64_t step_ = 0;
  double loss_scale_ = 1.0;
  std::size_t next_ = 0;  ///< the bucket that leaves next
  bool collecting_ = false;
};

}  // namespace trainyard::distributed
