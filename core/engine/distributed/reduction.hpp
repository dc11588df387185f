// The sum of the gradients over the ranks, while backward is still running; and with it what the ranks agree
// upon at every step, which costs no exchange of its own.
//
// Parameters lie in buckets, the last of the network first, which is about the order in which backward is done
// with them. A bucket leaves as soon as it and those before it are whole. Li et al., "PyTorch Distributed:
// Experiences on Accelerating Data Parallel Training", VLDB 2020, section 3.2. A large gradient is summed where
// it lies: copying it into a bucket would cost more than an exchange of its own.
//
// Ranks of several machines sum short buckets by nodes, for which messages are what costs (helpers/nodes.hpp).
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

/// Of this rank ahead of finish(), of all of them afterwards.
struct Tail {
  double loss = 0.0;         ///< sum of the losses, each times its weight
  double counted = 0.0;      ///< the sum of those weights
  double weight = 0.0;       ///< of what the gradients are of
  std::int64_t skipped = 0;  ///< ranks that leave the whole step out
  std::uint32_t bits = 0;    ///< whatever one rank asks for, all do; 24 of them at most
};

/// Which parameters lie in which bucket, in the order in which buckets leave.
struct Layout {
  struct Bucket {
    std::vector<std::size_t> parameters;  ///< their numbers
    BucketPlan plan;
    bool compressed = false;  ///< the compressor sums it
    bool in_place = false;    ///< of one parameter, whose gradient is the bucket
  };
  std::vector<Bucket> buckets;  ///< the last one is summed as it is
};

/// `compressor`: null where there is none. `bucket_bytes`: of a bucket, at most, but for a larger parameter.
Layout make_layout(const std::vector<NamedTensor>& parameters, std::int64_t bucket_bytes,
                   const Compressor* compressor);

class Reduction {
 public:
  /// `parameters` in the network's order; their gradients are float, or double as they are. All ranks have the same,
  /// and make it at the same point. `compressor`: as of the layout, open for it.
  /// `settle`: waits for what was exchanged on a device, ahead of reading the tail.
  Reduction(Ranks& ranks, const std::vector<NamedTensor>& parameters, Layout layout, Compressor* compressor,
            std::function<void()> settle = {});
  ~Reduction();
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  const Compressor* compressor() const { return compressor_; }

  /// A step of the run begins, or is repeated. `loss_scale`: of its gradients; a compressor, which keeps some of
  /// them for other steps, gets them without it.
  void start(std::int64_t step, double loss_scale = 1.0) {
    step_ = step;
    loss_scale_ = loss_scale;
  }
  /// The next backward is the last of the step: buckets leave while it runs. Without it they leave at
  /// finish().
  void collect() { collecting_ = true; }
  /// The gradient of one parameter is whole, whatever backward is at; one at a time, on any thread.
  void give(std::size_t parameter);
  /// Every gradient becomes the sum over the ranks, times `weight` over that of the tail; one that no rank has
  /// stays undefined. What is not summed in place lies in its bucket from then on, until the next step.
  Tail finish(const Tail& own, double weight);

 private:
  class Hook;
  struct Bucket {
    at::Tensor flat;                ///< with the tail, in the last one; a gradient itself, where in place
    at::Tensor gradients;           ///< without it
    std::vector<at::Tensor> views;  ///< of each parameter
    std::size_t missing = 0;
    std::optional<SumByNodes> by_nodes;
    std::unique_ptr<Exchange> exchange;  ///< since it left
  };
  struct Place {
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
  std::vector<Place> places_;                    ///< by parameter
  std::unique_ptr<RankGroup> within_, between_;  ///< nodes, where a bucket is summed by nodes
  std::vector<Bucket> buckets_;
  std::vector<bool> put_;  ///< by parameter: its gradient is in the bucket
  std::int64_t step_ = 0;
  double loss_scale_ = 1.0;
  std::size_t next_ = 0;  ///< the bucket that leaves next
  bool collecting_ = false;
};

}  // namespace trainyard::distributed
