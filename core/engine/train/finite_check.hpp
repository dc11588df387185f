// The NaN guard: what a hook declares to write of model, gradients or outputs must be finite after it, if it
// was before.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/network.hpp>

#include "core/engine/events/bus.hpp"
#include "core/engine/train/loop_context.hpp"

namespace trainyard::train {

/// Returns the name of the first tensor with a value that is not finite.
std::optional<std::string> first_infinite(const std::vector<NamedTensor>& tensors);

class FiniteCheck final : public events::Inspector {
 public:
  /// `answer` says what happens to such a hook. With `disable` the regions are copied before each of those
  /// hooks, so that its write can be undone.
  FiniteCheck(LoopContext& context, events::Answer answer) : context_(context), answer_(answer) {}

  bool wants(Event event, Regions writes) const override;
  void before(Regions writes) override;
  void after(Regions writes) override;

 private:
  /// A tensor's handle, and a copy of its content.
  struct Kept {
    at::Tensor handle, content;
  };

  void keep(Regions writes);
  void restore();

  LoopContext& context_;
  events::Answer answer_;
  Regions finite_;  ///< the checked regions that were finite before the hook
  std::vector<Kept> kept_;
  std::vector<at::Tensor> gradients_;  ///< handles, in the order of the parameters
  at::Tensor output_, loss_;
};

}  // namespace trainyard::train
