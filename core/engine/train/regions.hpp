// The tensors in the regions that hooks write, as the inspectors of a run see them.
#pragma once

#include <vector>

#include <trainyard/event.hpp>
#include <trainyard/named_tensor.hpp>

#include "core/engine/train/loop_context.hpp"

namespace trainyard::train {

/// Returns those that exist now, by name; none for a region without tensors.
std::vector<NamedTensor> tensors_of(Region region, const LoopContext& context);

}  // namespace trainyard::train
