// Losses of several models on one batch at once: what an executor that trains them side by side asks of a loss. One
// that has it not is asked for each model by itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("mixins/grades_members.hpp");

namespace trainyard {

/// Of a loss, by dynamic_cast. Loop thread.
class GradesMembers {
 public:
  virtual ~GradesMembers() = default;

  /// The losses [members] of outputs [members, size, ...]: each what Loss::forward gives for the output of that
  /// member, and dependent on no other.
  virtual at::Tensor forward_members(const at::Tensor& output, const Batch& batch) const = 0;
};

}  // namespace trainyard
