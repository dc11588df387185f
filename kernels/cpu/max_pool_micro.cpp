// This file is compiled once per instruction set, named by TRAINYARD_ISA. It includes no code that the linker
// could share with other units, as that code would be compiled for this set.
#include "kernels/cpu/max_pool_micro.hpp"

namespace trainyard::kernels {
namespace {

/// Compares one place of each window in a row of outputs to its largest number so far. A constant `stride`
/// makes the loop one of vectors.
inline void look(float* __restrict best, std::int32_t* __restrict place, const float* __restrict x,
                 std::int32_t at, std::int64_t count, std::int64_t stride) {
  for (std::int64_t c = 0; c < count; ++c) {
    const float value = x[c * stride];
    const bool is_larger = value > best[c] || value != value;
    best[c] = is_larger ? value : best[c];
    place[c] = is_larger ? at + static_cast<std::int32_t>(c * stride) : place[c];
  }
}

void look_at(float* best, std::int32_t* place, const float* x, std::int32_t at, std::int64_t count,
             std::int64_t stride) {
  if (stride == 1) return look(best, place, x, at, count, 1);
  if (stride == 2) return look(best, place, x, at, count, 2);
  look(best, place, x, at, count, stride);
}

void rectify(float* __restrict y, std::int32_t* __restrict place, std::int64_t count) {
  for (std::int64_t c = 0; c < count; ++c) {
    const bool is_dead = y[c] <= 0.0f;
    y[c] = is_dead ? 0.0f : y[c];
    place[c] = is_dead ? -1 : place[c];
  }
}

void forward(const MaxPool& p, std::int64_t begin, std::int64_t end) {
  const std::int64_t count = p.out_columns;
  for (std::int64_t row = begin * p.out_rows; row < end * p.out_rows; ++row) {
    const float* const plane = p.x + row / p.out_rows * p.rows * p.columns;
    const std::int64_t top = row % p.out_rows * p.row_stride;
    float* const y = p.y + row * count;
    std::int32_t* const place = p.place + row * count;
    for (std::int64_t c = 0; c < count; ++c) {
      y[c] = plane[top * p.columns + c * p.column_stride];
      place[c] = static_cast<std::int32_t>(top * p.columns + c * p.column_stride);
    }
    for (std::int64_t r = 0; r < p.kernel_rows; ++r)
      for (std::int64_t c = r == 0 ? 1 : 0; c < p.kernel_columns; ++c) {
        const std::int64_t at = (top + r) * p.columns + c;
        look_at(y, place, plane + at, static_cast<std::int32_t>(at), count, p.column_stride);
      }
    if (p.relu) rectify(y, place, count);
  }
}

void backward(const MaxPool& p, std::int64_t begin, std::int64_t end) {
  const std::int64_t size = p.rows * p.columns, windows = p.out_rows * p.out_columns;
  for (std::int64_t plane = begin; plane < end; ++plane) {
    float* const to = p.x_gradient + plane * size;
    for (std::int64_t i = 0; i < size; ++i) to[i] = 0.0f;
    const float* const given = p.given + plane * windows;
    const std::int32_t* const place = p.place + plane * windows;
    for (std::int64_t i = 0; i < windows; ++i)
      if (place[i] >= 0) to[place[i]] += given[i];
  }
}

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(max_pool_, isa)
const MaxPoolKernels TRAINYARD_NAME(TRAINYARD_ISA) = {forward, backward};

}  // namespace trainyard::kernels
