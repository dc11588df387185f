// Computes many linear layers with small matrices, as in an array of models: a layer is one call forward and
// one backward, with its bias, its ReLU and its sums of gradients. All is float, row-major and without gaps.
// Nothing is shared between calls, so that callers may divide layers, and a layer gets the same bits whoever
// computes it. Results depend on the instruction set by the rounding of sums alone.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

struct LinearShape {
  std::int64_t rows = 0, in = 0, out = 0;  ///< at least 1 each
  bool relu = false;                       ///< behind the layer; NaN stays
};

/// y = x W^T + b.
struct LinearForward {
  LinearShape shape;
  const float* x = nullptr;       ///< [rows, in]
  const float* weight = nullptr;  ///< [out, in]
  const float* bias = nullptr;    ///< [out], or null
  float* y = nullptr;             ///< [rows, out]
  float* scratch = nullptr;       ///< scratch_floats
};

/// With dz the gradient of y, 0 where the ReLU gave 0: dx = dz W, dW = dz^T x, db = sum of the rows of dz.
struct LinearBackward {
  LinearShape shape;
  const float* x = nullptr;
  const float* weight = nullptr;
  const float* y = nullptr;      ///< the result of forward; read for ReLU only
  const float* given = nullptr;  ///< the gradient of y
  float* x_gradient = nullptr;   ///< any of the three may be null
  float *weight_gradient = nullptr, *bias_gradient = nullptr;
  bool adds_weight = false, adds_bias = false;  ///< adds to the present values
  float* scratch = nullptr;
};

struct LinearKernels {
  std::int64_t (*scratch_floats)(const LinearShape& shape);  ///< per caller
  void (*forward)(const LinearForward& what);
  void (*backward)(const LinearBackward& what);
};

/// Throws std::invalid_argument where the processor has not these instructions.
const LinearKernels& linear_kernels(Isa isa = fastest_isa());

}  // namespace trainyard::kernels
