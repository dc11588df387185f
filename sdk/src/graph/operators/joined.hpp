// Tensors that lie behind each other in memory as one tensor.
#pragma once

#include <optional>
#include <span>

#include <ATen/core/Tensor.h>

namespace trainyard {

/// Returns the parts joined along their first axis, without a copy, where they lie behind each other in one storage; nothing where they do not.
/// Under autograd each part gets its piece of the gradient.
std::optional<at::Tensor> joined_in_place(std::span<const at::Tensor> parts);

}  // namespace trainyard
