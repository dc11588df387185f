// First and second derivatives of a loss by the outputs of a network, sample by sample.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <trainyard/error.hpp>

namespace executors {

/// What stands for the matrix of a sample's second derivatives, an output each.
enum class Curvature : std::uint8_t {
  row_sums,  ///< the sum of its row's magnitudes: the quadratic form of these lies nowhere below that of the matrix
  diagonal,  ///< its diagonal: outputs that pull the loss together, as logits of a softmax do, go too far at a rate of 1
};

struct Derivatives {
  at::Tensor first, second;  ///< of the shape of the output
};

/// Differentiates a loss, for which `output`, [size, ...], is a leaf, twice: once for all, then once for each output of a
/// sample. No sample may see the output of another. Throws ConfigError where the loss has no second derivatives.
inline Derivatives derivatives(const at::Tensor& loss, const at::Tensor& output, Curvature curvature) {
  using torch::autograd::grad;
  const at::Tensor first = grad({loss}, {output}, {}, /*retain_graph=*/true, /*create_graph=*/true).front();
  const std::int64_t size = output.size(0);
  const at::Tensor columns = first.reshape({size, -1});
  const at::Tensor second = at::zeros_like(columns.detach());
  for (std::int64_t k = 0; first.requires_grad() && k < second.size(1); ++k) {
    const bool last = k + 1 == second.size(1);
    const at::Tensor row =
        grad({columns.select(1, k).sum()}, {output}, {}, /*retain_graph=*/!last, /*create_graph=*/false,
             /*allow_unused=*/true)
            .front();
    if (!row.defined()) continue;
    const at::Tensor rows = row.reshape({size, -1});
    second.select(1, k).copy_(curvature == Curvature::diagonal ? rows.select(1, k) : rows.abs().sum(1));
  }
  if (!second.any().item<bool>() && first.any().item<bool>())
    throw trainyard::ConfigError(
        "the loss has no second derivative by the model's outputs, and a round of boosting goes by it: take "
        "a loss that is "
        "curved, such as mse, bce_with_logits or cross_entropy");
  return {first.detach(), second.reshape(output.sizes())};
}

}  // namespace executors
