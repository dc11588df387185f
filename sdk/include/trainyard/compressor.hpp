// compressor/1: how the gradients of several ranks are summed: what of them goes over the wire, and what is kept
// back for later.
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

/// Gradients that lie one behind the other in a flat float tensor.
struct BucketPlan {
  struct Part {
    std::string name;  ///< of the parameter
    std::int64_t offset = 0;
    std::vector<std::int64_t> shape;
  };
  std::int64_t elements = 0;
  std::vector<Part> parts;
};

class Compressor : public Plugin {
 public:
  static constexpr Kind kind{"compressor", 1};

  /// Whether the gradient of a parameter is to come in a bucket; others are summed as they are, in one go.
  virtual bool takes(const NamedTensor& parameter) const = 0;

  /// Ahead of the first step, on all ranks; again where it was swapped in. `ranks` outlives the plugin, `scale` is
  /// that of the run. Throws ConfigError where it cannot work with them.
  virtual void open(Ranks& ranks, std::span<const BucketPlan> buckets, const RunScale& scale) = 0;

  /// `gradients` is what this rank has for a bucket in a step (of the run, from 0); once the exchange was waited
  /// for, it is what stands for the sum over the ranks, the same on all of them, to the bit. Buckets come in the
  /// same order on all ranks, perhaps on the thread of autograd while backward goes on.
  virtual std::unique_ptr<Exchange> reduce(std::size_t bucket, const at::Tensor& gradients,
                                           std::int64_t step) = 0;

  /// `save` (Plugin) writes the state of this rank; each rank's is in a checkpoint. `saved` has those of the ranks
  /// that wrote it, in their order: as many as there are now, or another number, which must lose nothing of what
  /// was kept back. Throws DataError where that cannot be.
  virtual void load_all(std::span<const State> saved) = 0;
};

}  // namespace trainyard
