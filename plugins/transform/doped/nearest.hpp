// The structured matrix that is nearest to a given one, by the sum of squared differences.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "structure.hpp"

namespace doped {

/// Returns the factors of K, in the order of their parameters: left and right; u and v; rows (where there are any), u and v.
/// kp: the best sum of one term (Van Loan and Pitsianis, "Approximation with Kronecker products", 1993); lmf: the
/// truncated singular value decomposition; hmd: the free rows as they are, and the nearest matrix of rank one below them.
std::vector<at::Tensor> nearest(const Structure& structure, const at::Tensor& matrix);

/// Returns K of its factors, [rows, columns].
at::Tensor product(const Structure& structure, const std::vector<at::Tensor>& factors);

}  // namespace doped
