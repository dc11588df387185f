// Helpers for tensors that store few of their numbers: gradients of the rows that a batch touched
// (Optimizer::step), scores of a few classes (Network::forward).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>

#include <ATen/core/Tensor.h>

namespace trainyard {

/// Returns the numbers that a tensor stores: the values of a sparse one, else itself. The same memory.
inline at::Tensor stored(const at::Tensor& tensor) {
  if (tensor.layout() == at::kStrided) return tensor;
  return tensor.is_sparse() ? tensor._values() : tensor.values();
}

/// Returns a sparse gradient with each of its rows once, ascending: coalesced. One that is so already, though
/// autograd forgets to mark the gradients that it hands over, is not sorted again.
inline at::Tensor each_row_once(const at::Tensor& gradient) {
  if (gradient.is_coalesced()) return gradient;
  const at::Tensor indices = gradient._indices();
  if (!indices.is_cpu() || indices.size(0) != 1 || !indices.is_contiguous()) return gradient.coalesce();
  const std::span rows(indices.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(indices.numel()));
  const bool once = std::ranges::adjacent_find(rows, std::greater_equal<>()) == rows.end();
  return once ? gradient._coalesced_(true) : gradient.coalesce();
}

}  // namespace trainyard
