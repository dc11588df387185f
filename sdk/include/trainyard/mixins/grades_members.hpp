// Losses of several models on one batch at once, for executors that train models side by side. A loss without
// this interface is called for each model by itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("mixins/grades_members.hpp");

namespace trainyard {

/// A loss implements it; the executor finds it by dynamic_cast. Loop thread.
class GradesMembers {
 public:
  virtual ~GradesMembers() = default;

  /// Returns the losses [members] of outputs [members, size, ...]: each is what Loss::forward gives for the
  /// output of that member, and depends on no other.
  virtual at::Tensor forward_members(const at::Tensor& output, const Batch& batch) const = 0;
};

}  // namespace trainyard
