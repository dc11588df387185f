// A micro-batch cut by its samples, for executors that send parts of it through the network one after another.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/error.hpp>
#include <trainyard/loss.hpp>

namespace executors {

/// `count` samples of a batch, from `first` on, with what they weigh in the loss; tensors are views. Throws PluginError
/// where a field has not one row a sample.
inline trainyard::Batch rows_of(const trainyard::Loss& loss, const trainyard::Batch& batch,
                                std::int64_t first, std::int64_t count) {
  const auto rows = [&](const at::Tensor& tensor) {
    if (tensor.size(0) != batch.size())
      throw trainyard::PluginError("a batch of " + std::to_string(batch.size()) + " samples has a field of " +
                                   std::to_string(tensor.size(0)) +
                                   " rows: a hook has changed it; samples cannot be told apart");
    return tensor.narrow(0, first, count);
  };
  trainyard::Batch part;
  for (const at::Tensor& input : batch.inputs) part.inputs.push_back(rows(input));
  if (batch.target.defined()) part.target = rows(batch.target);
  part.indices.assign(batch.indices.begin() + first, batch.indices.begin() + first + count);
  part.weight = loss.weight(part);
  return part;
}

}  // namespace executors
