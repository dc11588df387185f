// Finds undeclared writes of hooks: by default in a sample of the calls; with --strict-state in all of them,
// which is slow, as the whole state is copied before every hook.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/engine/events/bus.hpp"
#include "core/engine/train/loop_context.hpp"

namespace trainyard::train {

/// Compares, around each hook, the regions that it did not declare: tensors by version and then by their
/// bits, as writes below autograd (fused kernels) do not change the version; learning rates and the like by
/// value.
class StrictState final : public events::Inspector {
 public:
  enum class Look : std::uint8_t {
    whole,
    /// Versions, and a few of the values. Leaves out the optimizer's state, which some optimizers bring up to
    /// date when they are asked for it.
    sample,
  };
  StrictState(LoopContext& context, Look look) : context_(context), look_(look) {}

  bool wants(Event, Regions) const override { return true; }
  void before(Regions writes) override;
  /// Throws Objection (the run ends) with region, tensor and how to mend it.
  void after(Regions writes) override;

 private:
  struct Seen {
    Region region;
    std::string name;
    at::Tensor content;  ///< a copy
    std::int64_t version;
    std::uint64_t few;  ///< in a sample: a hash of some of the values
  };

  bool compares(Region region, Regions writes) const;

  LoopContext& context_;
  const Look look_;
  std::vector<Seen> tensors_;
  std::vector<std::pair<std::string, double>> numbers_;  ///< of region `hyper`
};

}  // namespace trainyard::train
