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
};

/// Throws std::invalid_argument where the processor has not these instructions.
const RowKernels& row_kernels(Isa isa = fastest_isa());

}  // namespace trainyard::kernels
