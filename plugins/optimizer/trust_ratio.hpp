// The layer-wise factor of LARS and LAMB, computed on the device.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

namespace optimizers {

using namespace trainyard;

/// Multiplies updates[i] with coefficient * |w| / (|d| + weight_decay * |w| + eps), where w = params[i] and
/// d = directions[i]; with 1 where |w| or |d| is 0, and for parameters of fewer dimensions than `least_dim`.
inline void scale_by_trust(std::vector<at::Tensor>& updates, const std::vector<at::Tensor>& params,
                           const std::vector<at::Tensor>& directions, std::int64_t least_dim,
                           double coefficient = 1.0, double weight_decay = 0.0, double eps = 0.0) {
  std::vector<at::Tensor> scaled, weights, steps;
  for (std::size_t i = 0; i < params.size(); ++i)
    if (params[i].dim() >= least_dim) {
      scaled.push_back(updates[i]);
      weights.push_back(params[i]);
      steps.push_back(directions[i]);
    }
  if (scaled.empty()) return;
  const at::Tensor weight_norm = at::stack(at::_foreach_norm(weights));
  const at::Tensor step_norm = at::stack(at::_foreach_norm(steps));
  const at::Tensor ratio =
      weight_norm.mul(coefficient).div_(step_norm.add(weight_norm, weight_decay).add_(eps));
  const at::Tensor both = at::logical_and(weight_norm.gt(0), step_norm.gt(0));
  const std::vector<at::Tensor> factors = at::where(both, ratio, 1.0).to(ratio.scalar_type()).unbind();
  for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i].mul_(factors[i]);
}

/// The option `adapt` of both: which parameters get a factor of their own.
template <class Fields, class Options>
void describe_adapt(Fields& m, std::string Options::*member) {
  m.option("adapt", member,
           "what the trust ratio applies to: all parameters, or matrices (two or more dimensions) only")
      .one_of({"all", "matrices"});
}
inline std::int64_t least_adapted_dim(const std::string& adapt) {
  return adapt == "matrices" ? 2 : 0;
}

}  // namespace optimizers
