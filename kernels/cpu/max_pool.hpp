// Finds the largest number in each window of planes, after an optional ReLU, and its gradients. Windows lie
// within their plane. All is float and without gaps. Each plane is computed by itself, so that callers may
// divide planes among threads and no bit depends on that, nor on the instruction set. Of equal numbers the
// first counts, and NaN is larger than all others (as in LibTorch).
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

struct MaxPool {
  std::int64_t rows = 0, columns = 0;          ///< of a plane
  std::int64_t out_rows = 0, out_columns = 0;  ///< windows of it
  std::int64_t kernel_rows = 0, kernel_columns = 0, row_stride = 1, column_stride = 1;
  bool relu = false;
  const float* x = nullptr;  ///< [planes, rows, columns]
  float* y = nullptr;        ///< [planes, out_rows, out_columns]
  std::int32_t* place =
      nullptr;  ///< of the largest in its plane, as y; -1 where the ReLU lets no gradient pass
  const float* given = nullptr;  ///< backward: the gradient of y
  float* x_gradient = nullptr;   ///< backward: as x
};

struct MaxPoolKernels {
  void (*forward)(const MaxPool& what, std::int64_t begin, std::int64_t end);   ///< planes [begin, end)
  void (*backward)(const MaxPool& what, std::int64_t begin, std::int64_t end);  ///< reads `place` and `given`
};

/// Throws std::invalid_argument where the processor has not these instructions.
const MaxPoolKernels& max_pool_kernels(Isa isa = fastest_isa());

}  // namespace trainyard::kernels
