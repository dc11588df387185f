// Scaled dot-product attention of one head, forward and backward, without a matrix of all its weights: a strip of rows
// after another, of whose columns causal attention computes few that it does not need. The weights are computed again
// in the backward pass from the logarithm of their sums (Dao et al., "FlashAttention", NeurIPS 2022, section 3.1 and
// algorithm 4). float; sums are in a fixed order; results depend on the instruction set by rounding alone.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

struct AttentionShape {
  std::int64_t time, width;
  bool causal;   ///< row i looks at rows 0 to i, else at all
  float factor;  ///< of the scores, above 0
};

/// A matrix [time, width] whose rows lie `stride` elements apart.
struct AttentionRows {
  float* data;
  std::int64_t stride;
};

struct AttentionInputs {
  AttentionRows query, key, value;
};

struct AttentionKernels {
  /// Floats that a call needs for itself.
  std::int64_t (*room)(const AttentionShape& shape);
  /// output = softmax(factor query key^T) value; `logs`, [time]: the logarithms of the sums of the exponentials.
  void (*forward)(const AttentionShape& shape, const AttentionInputs& inputs, const AttentionRows& output,
                  float* logs, float* room);
  /// `gradients` of the inputs from `given`, that of the output: written, not added to.
  void (*backward)(const AttentionShape& shape, const AttentionInputs& inputs, const AttentionRows& output,
                   const float* logs, const AttentionRows& given, const AttentionInputs& gradients,
                   float* room);
};

/// Throws std::invalid_argument where the processor has not these instructions.
const AttentionKernels& attention_kernels(Isa isa = fastest_isa());

}  // namespace trainyard::kernels
