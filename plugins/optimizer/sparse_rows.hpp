// Gradients that are sparse (Optimizer::step): rows of a table that a batch touched.
#pragma once

#include <algorithm>

#include <ATen/ops/div.h>

#include <trainyard/helpers/slot_optimizer.hpp>
#include <trainyard/helpers/sparse.hpp>

namespace optimizers {

using namespace trainyard;

/// Calls `update(parameter, slots, rows, values)` for each parameter of the lists whose gradient is sparse,
/// with the rows that it has, each once, and what they are to be added; says which parameters are left.
template <class Update>
UpdateLists update_rows(const UpdateLists& lists, const Update& update) {
  UpdateLists dense;
  dense.slots.resize(lists.slots.size());
  for (std::size_t i = 0; i < lists.params.size(); ++i) {
    std::vector<at::Tensor> slots;
    for (const std::vector<at::Tensor>& slot : lists.slots) slots.push_back(slot[i]);
    if (lists.grads[i].is_sparse()) {
      const at::Tensor gradient = each_row_once(lists.grads[i]);
      update(lists.params[i], slots, gradient._indices().squeeze(0), gradient._values());
      continue;
    }
    dense.params.push_back(lists.params[i]);
    dense.grads.push_back(lists.grads[i]);
    for (std::size_t s = 0; s < slots.size(); ++s) dense.slots[s].push_back(slots[s]);
  }
  return dense;
}

inline bool any_sparse(const UpdateLists& lists) {
  return std::any_of(lists.grads.begin(), lists.grads.end(),
                     [](const at::Tensor& gradient) { return gradient.is_sparse(); });
}

/// Where a row without a gradient would move, too, leaving it alone is another optimizer.
inline void require_no_decay(double weight_decay) {
  if (weight_decay != 0.0)
    throw ConfigError(
        "a parameter has a sparse gradient, and optimizer.weight_decay = " + std::to_string(weight_decay) +
        " moves rows without one: set it to 0, or choose lazy_adam");
}

/// Adagrad of some rows, each once, with a sum of squares for each element.
inline void adagrad_rows(const at::Tensor& param, const at::Tensor& sums, const at::Tensor& rows,
                         const at::Tensor& gradient, double rate, double eps) {
  at::Tensor sum = sums.index_select(0, rows).addcmul_(gradient, gradient);
  sums.index_copy_(0, rows, sum);
  param.index_add_(0, rows, gradient.div(sum.sqrt_().add_(eps)), -rate);
}

}  // namespace optimizers
