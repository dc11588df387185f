// Works on few rows of a large matrix, which are given by number, for layers with few of their inputs, or
// outputs, in a sample. The matrix is float or bfloat16, row-major and without gaps; rows have any width.
// Products and sums are float. Results depend on the instruction set by the rounding of sums alone.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

struct RowMatrix {
  const float* data;
  std::int64_t width;
};

/// A matrix of bfloat16, the upper halves of floats.
struct HalfMatrix {
  const std::uint16_t* data;
  std::int64_t width;
};

/// A step of Adam for a row: mean += of_mean (g - mean), square = beta2 square + of_square g^2, weight = kept
/// weight - rate mean / (inverse_root sqrt(square) + eps), with g = gradient + weight_decay weight.
struct AdamStep {
  float of_mean;           ///< 1 - beta1, rounded by itself: the float next to beta1 is further off
  float beta2, of_square;  ///< of_square: 1 - beta2
  float rate;              ///< lr / (1 - beta1^t)
  float inverse_root;      ///< 1 / sqrt(1 - beta2^t)
  float eps, weight_decay;
  float kept = 1.0f;  ///< 1 - lr * decay where decay is no part of the gradient
};

/// The parameters of a step. `decouples`: weight decay is AdamW's, else a part of the gradient.
struct AdamNumbers {
  double lr, beta1, beta2, eps, weight_decay = 0.0;
  bool decouples = false;
};

/// Returns update number `count` of a row, from 1; in double, as 1 - beta^t near 1 has no digits to spare.
AdamStep adam_step(const AdamNumbers& numbers, std::int64_t count);

struct AdamRow {
  float *weight, *exp_avg, *exp_avg_sq;
  std::int64_t width;
};

struct RowKernels {
  /// out[i] = x . matrix[rows[i]]
  void (*dots)(float* out, const float* x, RowMatrix matrix, const std::int64_t* rows, std::int64_t count);
  /// out = first + sum over i of scales[i] matrix[rows[i]], in their order. `first` may be null: zeros.
  void (*sum)(float* out, const float* first, const float* scales, RowMatrix matrix, const std::int64_t* rows,
              std::int64_t count);
  /// The same for matrices of halves.
  void (*half_dots)(float* out, const float* x, HalfMatrix matrix, const std::int64_t* rows,
                    std::int64_t count);
  void (*half_sum)(float* out, const float* first, const float* scales, HalfMatrix matrix,
                   const std::int64_t* rows, std::int64_t count);
  /// Does a step of Adam with the gradient of the row. No bit depends on how a long row is divided.
  void (*adam)(const AdamRow& row, const float* gradient, const AdamStep& step);
  /// Does steps with zero gradients, in their order: one call gives the same bits as several.
  void (*adam_idle)(const AdamRow& row, const AdamStep* steps, std::int64_t count);
};

/// Throws std::invalid_argument where the processor has not these instructions.
const RowKernels& row_kernels(Isa isa = fastest_isa());

}  // namespace trainyard::kernels
