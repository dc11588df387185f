// Computes scaled dot-product attention of one head, forward and backward, without a matrix of all weights:
// in strips of rows, so that causal attention computes few needless columns. The backward pass computes the
// weights again from the logarithm of their sums (Dao et al., "FlashAttention", NeurIPS 2022, section 3.1,
// algorithm 4). float; sums are in a fixed order; results depend on the instruction set by rounding alone.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

struct AttentionShape {
  std::int64_t time, width;
  bool causal;   ///< row i attends to rows 0 to i; otherwise to all
  float factor;  ///< factor of the scores, above 0
};

/// A matrix [time, width] whose rows lie `stride` elements apart.
struct AttentionRows {
  float* data;
  std::int64_t stride;
};

struct AttentionInputs {
  AttentionRows query, key, value;
};

/// Some rows of the scores of a head, whose products are made elsewhere, with bfloat16: `count` of them from row `first` on,
/// `stride` elements apart, a multiple of 16. Scores behind those that a row attends to are not looked at, and have weights and
/// gradients of 0.
struct ScoreRows {
  std::int64_t first, count, stride;
};

/// Rows of bfloat16, as their bits.
struct HalfRows {
  const std::uint16_t* data;
  std::int64_t stride;
};

struct AttentionKernels {
  /// Returns the floats that a call needs as `room`.
  std::int64_t (*room)(const AttentionShape& shape);
  /// output = softmax(factor query key^T) value; `logs`, [time]: the logarithms of the sums of the exponentials.
  void (*forward)(const AttentionShape& shape, const AttentionInputs& inputs, const AttentionRows& output,
                  float* logs, float* room);
  /// `gradients` of the inputs from `given`, that of the output: written, not added to.
  void (*backward)(const AttentionShape& shape, const AttentionInputs& inputs, const AttentionRows& output,
                   const float* logs, const AttentionRows& given, const AttentionInputs& gradients,
                   float* room);
  /// Turns scores, query key^T, into weights, and gives the logarithms of those rows as `forward` does. `scores` is spoilt.
  void (*weigh)(const AttentionShape& shape, const ScoreRows& rows, float* scores, std::uint16_t* weights,
                float* logs);
  /// Computes the weights again, and from the gradients of the weights those of the scores. `output` and `given`: the head's, from
  /// its first row on.
  void (*weigh_again)(const AttentionShape& shape, const ScoreRows& rows, const float* scores,
                      const float* of_weights, const float* logs, const HalfRows& output,
                      const HalfRows& given, std::uint16_t* weights, std::uint16_t* of_scores);
};

/// Throws std::invalid_argument where the processor has not these instructions.
const AttentionKernels& attention_kernels(Isa isa = fastest_isa());

}  // namespace trainyard::kernels
