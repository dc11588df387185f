// The layer-wise factor of LARS and LAMB, computed on the device.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "shared_out.hpp"

namespace optimizers {

using namespace trainyard;

/// coefficient * |w| / (|d| + weight_decay * |w| + eps) of each; 1 where |w| or |d| is 0.
inline at::Tensor factors(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& steps,
                          double coefficient, double weight_decay, double eps) {
  const at::Tensor weight_norm = at::stack(at::_foreach_norm(weights));
  const at::Tensor step_norm = at::stack(at::_foreach_norm(steps));
  const at::Tensor ratio =
      weight_norm.mul(coefficient).div_(step_norm.add(weight_norm, weight_decay).add_(eps));
  const at::Tensor both = at::logical_and(weight_norm.gt(0), step_norm.gt(0));
  return at::where(both, ratio, 1.0).to(ratio.scalar_type());
}

/// Multiplies updates[i] with coefficient * |w| / (|d| + weight_decay * |w| + eps), where w = params[i] and
/// d = directions[i]; with 1 where |w| or |d| is 0, and for parameters of fewer dimensions than `least_dim`.
/// `ranks`: each of them computes some of the factors; null: this one all.
inline void scale_by_trust(std::vector<at::Tensor>& updates, const std::vector<at::Tensor>& params,
                           const std::vector<at::Tensor>& directions, std::int64_t least_dim,
                           RankGroup* ranks, double coefficient = 1.0, double weight_decay = 0.0,
                           double eps = 0.0) {
  std::vector<at::Tensor> scaled, weights, steps;
  for (std::size_t i = 0; i < params.size(); ++i)
    if (params[i].dim() >= least_dim) {
      scaled.push_back(updates[i]);
      weights.push_back(params[i]);
      steps.push_back(directions[i]);
    }
  if (scaled.empty()) return;
  const auto compute = [&](const std::vector<std::size_t>& items) {
    std::vector<at::Tensor> own_weights, own_steps;
    for (const std::size_t i : items) {
      own_weights.push_back(weights[i]);
      own_steps.push_back(steps[i]);
    }
    return factors(own_weights, own_steps, coefficient, weight_decay, eps);
  };
  std::vector<std::int64_t> sizes;
  if (ranks != nullptr)
    for (const at::Tensor& weight : weights) sizes.push_back(weight.numel());
  const std::vector<at::Tensor> factor =
      (ranks != nullptr ? shared_out(*ranks, sizes, weights.front().options().requires_grad(false), compute)
                        : factors(weights, steps, coefficient, weight_decay, eps))
          .unbind();
  for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i].mul_(factor[i]);
}

/// The option `adapt` of both: which parameters get a factor of their own.
template <class Fields, class Options>
void describe_adapt(Fields& m, std::string Options::*member) {
  m.option("adapt", member,
           "what the trust ratio applies to: all parameters, or matrices (two or more dimensions) only")
      .one_of({"all", "matrices"});
}
/// The option `pto` of both.
template <class Fields, class Options>
void describe_pto(Fields& m, bool Options::*member) {
  m.option("pto", member,
           "of several ranks, each computes the trust ratios of some parameters and gets the others': for "
           "networks "
           "of many");
}
inline std::int64_t least_adapted_dim(const std::string& adapt) {
  return adapt == "matrices" ? 2 : 0;
}

}  // namespace optimizers
