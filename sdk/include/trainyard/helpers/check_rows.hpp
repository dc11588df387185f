// Checks that a loss can compare the output of a network with the targets of a batch.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/error.hpp>

namespace trainyard {

/// Returns the batch, for Loss::forward. Throws PluginError where it has another number of targets than the
/// network gave rows; `output` has the sizes of the network's output.
inline const Batch& check_rows(const Batch& batch, at::IntArrayRef output) {
  if (!batch.target.defined() || batch.target.dim() == 0) return batch;
  if (!output.empty() && batch.target.size(0) == output.front()) return batch;
  throw PluginError(
      "the model gives " + (output.empty() ? "a number and no" : std::to_string(output.front())) +
      " rows for " + std::to_string(batch.target.size(0)) +
      " targets: a hook or a dropout that makes other rows of a batch has to make its inputs and "
      "its targets alike");
}

}  // namespace trainyard
