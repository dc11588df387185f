// A linear layer whose dropped blocks are skipped, under autograd.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "products.hpp"

namespace blockwise {

/// The layer's output, after ReLU where `relu`. `bias` may be undefined. Differentiable once.
at::Tensor masked_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         const std::shared_ptr<Products>& products, bool relu);

}  // namespace blockwise
