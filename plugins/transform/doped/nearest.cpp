#include "nearest.hpp"

#include <tuple>

#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/matmul.h>

namespace doped {
namespace {

/// Returns U [rows, rank] and V [rank, columns], of one matrix or of a batch; each has the root of the singular values.
std::tuple<at::Tensor, at::Tensor> truncated(const at::Tensor& matrix, std::int64_t rank) {
  const auto [u, values, v] = at::linalg_svd(matrix.to(at::kDouble), /*full_matrices=*/false);
  const at::Tensor root = values.narrow(-1, 0, rank).sqrt();
  return {(u.narrow(-1, 0, rank) * root.unsqueeze(-2)).to(matrix.scalar_type()),
          (v.narrow(-2, 0, rank) * root.unsqueeze(-1)).to(matrix.scalar_type())};
}

/// [left_rows, left_columns, right_rows, right_columns] of the matrix: what each element of the left factor multiplies.
at::Tensor blocks_of(const Structure& s, const at::Tensor& matrix) {
  return matrix.reshape({s.left_rows, s.right_rows, s.left_columns, s.right_columns}).permute({0, 2, 1, 3});
}

}  // namespace

std::vector<at::Tensor> nearest(const Structure& s, const at::Tensor& matrix) {
  if (s.form == Form::lmf) {
    auto [u, v] = truncated(matrix, s.rank);
    return {u, v};
  }
  if (s.form == Form::kp) {
    const auto [u, v] = truncated(
        blocks_of(s, matrix).reshape({s.left_rows * s.left_columns, s.right_rows * s.right_columns}), 1);
    return {u.reshape({s.left_rows, s.left_columns}), v.reshape({s.right_rows, s.right_columns})};
  }
  const at::Tensor blocks = matrix.reshape({s.blocks, s.rows / s.blocks, s.columns});
  auto [u, v] = truncated(blocks.narrow(1, s.free_rows, blocks.size(1) - s.free_rows), 1);
  if (s.free_rows == 0) return {u, v};
  return {blocks.narrow(1, 0, s.free_rows).clone(), u, v};
}

at::Tensor product(const Structure& s, const std::vector<at::Tensor>& factors) {
  if (s.form == Form::lmf) return factors[0].matmul(factors[1]);
  if (s.form == Form::kp)
    return (factors[0].reshape({s.left_rows, 1, s.left_columns, 1}) *
            factors[1].reshape({1, s.right_rows, 1, s.right_columns}))
        .reshape({s.rows, s.columns});
  const at::Tensor low = factors[factors.size() - 2].matmul(factors.back());
  return (factors.size() == 2 ? low : at::cat({factors[0], low}, 1)).reshape({s.rows, s.columns});
}

}  // namespace doped
