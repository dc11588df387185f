// compressor/1: sums the gradients of several ranks. It decides what is sent, and what is kept for later.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>
#include <trainyard/duration.hpp>
#include <trainyard/named_tensor.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/ranks.hpp>
#include <trainyard/state.hpp>

TRAINYARD_CONTRACT("compressor.hpp");

namespace trainyard {

/// Lays out a bucket: gradients that lie one behind the other in a flat float tensor.
struct BucketPlan {
  struct Part {
    std::string name;  ///< name of the parameter
    std::int64_t offset = 0;
    std::vector<std::int64_t> shape;
  };
  std::int64_t elements = 0;
  std::vector<Part> parts;
};

class Compressor : public Plugin {
 public:
  static constexpr Kind kind{"compressor", 1};

  /// Returns whether a parameter's gradient shall come in a bucket; others are summed as they are, in one go.
  virtual bool takes(const NamedTensor& parameter) const = 0;

  /// Called on all ranks before the first step, and again where the plugin was swapped in. `ranks` outlives
  /// the plugin, `scale` is that of the run. Throws ConfigError where the plugin cannot work with them.
  virtual void open(Ranks& ranks, std::span<const BucketPlan> buckets, const RunScale& scale) = 0;

  /// Starts the exchange of a bucket. `gradients` is what this rank has for it in a step (of the run, from
  /// 0); after wait() it is what stands for the sum over the ranks, the same on all, to the bit. Buckets come
  /// in the same order on all ranks, perhaps on the thread of autograd while backward goes on. A step may be
  /// skipped, or repeated with its number: what is kept back changes when after_step says that it was taken.
  virtual std::unique_ptr<Exchange> reduce(std::size_t bucket, const at::Tensor& gradients,
                                           std::int64_t step) = 0;

  /// Loads the states of all ranks, after open(). `save` writes that of this rank, a checkpoint holds each
  /// rank's. `saved` has those of the ranks that wrote it, in their order: as many as there are now, or
  /// another number, which must lose nothing of what was kept back. Throws DataError where that cannot be.
  virtual void load_all(std::span<const State> saved) = 0;
};

}  // namespace trainyard
