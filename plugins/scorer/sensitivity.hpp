// Relative importance of a weight in the sum that it is a term of, as SiPP and PFP define it: weights and inputs are each
// split into a positive and a negative part, and a term is divided by the sum of those of the same two parts.
#pragma once

#include <array>

#include <ATen/core/Tensor.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <trainyard/scorer.hpp>

namespace scorers {

using namespace trainyard;

/// One of the four pairs of parts, in double precision.
struct SignPair {
  bool negative_inputs = false;
  at::Tensor weight;  ///< [groups, outputs of a group, terms], not negative
  at::Tensor inputs;  ///< [samples, groups, terms, positions], not negative
  at::Tensor
      inverse;  ///< [samples, groups, outputs of a group, positions]: 1 / the sum of the terms; 0 where that is 0
};

/// Calls `visit` for each pair that has a term.
template <class Visit>
void for_sign_pairs(const ScoredLayer& layer, const LayerPass& pass, const Visit& visit) {
  const std::int64_t groups = layer.groups, terms = layer.weight.size(1) * layer.weight.size(2);
  const at::Tensor weight =
      layer.weight.to(at::kDouble).reshape({groups, layer.weight.size(0) / groups, terms});
  const at::Tensor inputs =
      pass.inputs.to(at::kDouble).reshape({pass.inputs.size(0), groups, terms, pass.inputs.size(3)});
  for (const double input_sign : {1.0, -1.0}) {
    const at::Tensor a = (inputs * input_sign).clamp_min(0);
    if (!a.any().item<bool>()) continue;
    for (const double weight_sign : {1.0, -1.0}) {
      const at::Tensor w = (weight * weight_sign).clamp_min(0);
      const at::Tensor sums = at::matmul(w, a);
      visit(SignPair{input_sign < 0, w, a, at::where(sums.gt(0), sums.reciprocal(), at::zeros_like(sums))});
    }
  }
}

}  // namespace scorers
