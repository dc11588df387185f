// Finds what hooks write without having declared it: always, at a sample of the calls; with --strict-state all of
// it, which is slow, as the whole state is copied before every hook.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/engine/events/bus.hpp"
#include "core/engine/train/loop_context.hpp"

namespace trainyard::train {

/// Compares, around each hook, the regions that it did not declare: tensors by version first, and by their
/// bits, as writes below autograd (fused kernels) leave the version alone; learning rates and the like by
/// value.
class StrictState final : public events::Inspector {
 public:
  enum class Look : std::uint8_t {
    whole,
    /// Versions, and a few of the values. Not of the optimizer's state, which some bring up to date when they are
    /// asked for it.
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
    std::uint64_t few;  ///< of a sample: the values, as one number
  };

  bool compares(Region region, Regions writes) const;

  LoopContext& context_;
  const Look look_;
  std::vector<Seen> tensors_;
  std::vector<std::pair<std::string, double>> numbers_;  ///< of region hyper
};

}  // namespace trainyard::train
