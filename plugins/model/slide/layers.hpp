// The two layers of the network, each of which uses few rows of its matrix in a sample. Gradients of the
// matrices are sparse (COO, coalesced): a row for each one that a sample used. On the CPU, float.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace slide {

/// Sample s uses rows[offsets[s]] .. rows[offsets[s + 1] - 1], each at most once; int64, contiguous.
struct RowSets {
  at::Tensor offsets, rows;

  std::int64_t samples() const { return offsets.size(0) - 1; }
};

/// What an int64 tensor, contiguous, holds: as long as it is there.
inline std::span<const std::int64_t> numbers(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(tensor.numel())};
}

/// How a row of a gradient is summed up over the samples that use it.
enum class Sums : std::uint8_t {
  ordered,  ///< in the order of the samples: results do not depend on the number of threads
  /// Each thread adds those of its samples where they belong, without a lock or an order, and what two add at
  /// once to a number may be lost for one of them: HOGWILD (Recht et al., NeurIPS 2011), as in section 3.1 of
  /// SLIDE. Of one thread nothing is lost.
  hogwild,
};

/// [samples, width]: bias + sum over the entries of scales[entry] table[row].
at::Tensor weighted_rows(const at::Tensor& table, const at::Tensor& bias, const RowSets& sets,
                         const at::Tensor& scales, Sums sums = Sums::ordered);

/// CSR [samples, rows of the table], stored where the sets are: h . table[row] + bias[row]. A table that is a
/// bfloat16 parameter has its gradient, which is float, from the backward pass and not from autograd, so that
/// nobody can ask for it otherwise (autograd::grad, hooks of its accumulation).
at::Tensor active_logits(const at::Tensor& h, const at::Tensor& table, const at::Tensor& bias,
                         const RowSets& sets, Sums sums = Sums::ordered);

}  // namespace slide
