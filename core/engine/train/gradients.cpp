#include "core/engine/train/gradients.hpp"

#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/add.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/stack.h>

#include <trainyard/helpers/sparse.hpp>

namespace trainyard::train {

void coalesce_gradients(std::vector<at::Tensor>& parameters) {
  for (at::Tensor& parameter : parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (gradient.defined() && gradient.is_sparse()) gradient = each_row_once(gradient);
  }
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters)
    if (const at::Tensor& gradient = parameter.grad(); gradient.defined())
      gradients.push_back(stored(gradient));
  return gradients;
}

void clear_gradients(std::vector<at::Tensor>& parameters) {
  for (at::Tensor& parameter : parameters) parameter.mutable_grad() = at::Tensor();
}

at::Tensor clip(std::vector<at::Tensor>& gradients, const config::GradClip& rule) {
  if (gradients.empty()) return {};
  if (rule.type == config::GradClip::Type::value) {
    at::_foreach_clamp_min_(gradients, -rule.max);
    at::_foreach_clamp_max_(gradients, rule.max);
    return {};
  }
  at::Tensor total = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)), 2);
  at::_foreach_mul_(gradients, at::clamp_max(at::reciprocal(at::add(total, 1e-6)).mul_(rule.max), 1.0));
  return total;
}

}  // namespace trainyard::train
