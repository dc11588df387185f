// The two layers of the network, each of which uses few rows of its matrix in a sample. Gradients of the
// matrices are sparse (COO, coalesced): a row for each one that a sample used, summed up in the order of the
// samples. On the CPU, float; results do not depend on the number of threads.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace slide {

/// Sample s uses rows[offsets[s]] .. rows[offsets[s + 1] - 1], each at most once; int64, contiguous.
struct RowSets {
  at::Tensor offsets, rows;

  std::int64_t samples() const { return offsets.size(0) - 1; }
};

/// [samples, width]: bias + sum over the entries of scales[entry] table[row].
at::Tensor weighted_rows(const at::Tensor& table, const at::Tensor& bias, const RowSets& sets,
                         const at::Tensor& scales);

/// CSR [samples, rows of the table], stored where the sets are: h . table[row] + bias[row].
at::Tensor active_logits(const at::Tensor& h, const at::Tensor& table, const at::Tensor& bias,
                         const RowSets& sets);

}  // namespace slide
