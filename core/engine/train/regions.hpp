// The tensors of the regions that hooks write, as the inspectors of a run look at them.
#pragma once

#include <vector>

#include <trainyard/event.hpp>
#include <trainyard/named_tensor.hpp>

#include "core/engine/train/loop_context.hpp"

namespace trainyard::train {

/// Those that exist at the moment, by name; empty for a region that is no tensors.
std::vector<NamedTensor> tensors_of(Region region, const LoopContext& context);

}  // namespace trainyard::train
