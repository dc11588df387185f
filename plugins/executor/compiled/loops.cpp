#include "loops.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

// Compiled once for each instruction set; the loader takes the best that the processor has.
#define PART_OF_EACH inline __attribute__((always_inline))
#define FOR_EACH_ISA __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))

namespace compiled {
namespace {

constexpr std::int64_t grain = 1 << 15;

FOR_EACH_ISA void add_part(float* total, const float* part, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) total[i] += part[i];
}
FOR_EACH_ISA void sum_part(float* sum, const float* a, const float* b, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}
FOR_EACH_ISA void sum_relu_part(float* sum, const float* a, const float* b, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = a[i] + b[i];
    sum[i] = x < 0.0f ? 0.0f : x;  // NaN stays
  }
}
FOR_EACH_ISA void mask_part(float* masked, const float* gradient, const float* output, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) masked[i] = output[i] <= 0.0f ? 0.0f : gradient[i];
}
FOR_EACH_ISA void sum_rows_part(float* __restrict sums, const float* __restrict matrix, std::int64_t rows,
                                std::int64_t columns, std::int64_t count) {
  for (std::int64_t c = 0; c < count; ++c) sums[c] = 0.0f;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < count; ++c) sums[c] += matrix[r * columns + c];
}

/// Of one block of channels of one image, added to what is there.
template <int block>
PART_OF_EACH void sum_block(float* __restrict sums, const float* __restrict image, std::int64_t pixels) {
  float found[block] = {};
  for (std::int64_t p = 0; p < pixels; ++p)
    for (int c = 0; c < block; ++c) found[c] += image[p * block + c];
  for (int c = 0; c < block; ++c) sums[c] += found[c];
}
FOR_EACH_ISA void sum_pixels_part(float* sums, const float* image, std::int64_t pixels, std::int64_t block) {
  block == 16 ? sum_block<16>(sums, image, pixels) : sum_block<8>(sums, image, pixels);
}

template <class Part>
void in_parts(std::int64_t count, const Part& part) {
  if (count <= grain) return part(0, count);
  at::parallel_for(0, count, grain, [&](std::int64_t begin, std::int64_t end) { part(begin, end - begin); });
}

template <class Part>
void in_rows(std::int64_t rows, std::int64_t columns, const Part& part) {
  const std::int64_t few = std::max<std::int64_t>(grain / columns, 1);
  if (rows <= few) return part(0, rows);
  at::parallel_for(0, rows, few, [&](std::int64_t begin, std::int64_t end) { part(begin, end - begin); });
}

}  // namespace

void copy(float* to, const float* from, std::int64_t count) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}

void add_into(float* total, const float* part, std::int64_t count) {
  in_parts(count, [&](std::int64_t at, std::int64_t n) { add_part(total + at, part + at, n); });
}

void add(float* sum, const float* a, const float* b, std::int64_t count) {
  in_parts(count, [&](std::int64_t at, std::int64_t n) { sum_part(sum + at, a + at, b + at, n); });
}

void add_relu(float* sum, const float* a, const float* b, std::int64_t count) {
  in_parts(count, [&](std::int64_t at, std::int64_t n) { sum_relu_part(sum + at, a + at, b + at, n); });
}

void through_relu(float* masked, const float* gradient, const float* output, std::int64_t count) {
  in_parts(count,
           [&](std::int64_t at, std::int64_t n) { mask_part(masked + at, gradient + at, output + at, n); });
}

/// Threads take columns, so that the order of the terms stays.
void sum_rows(float* sums, const float* matrix, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t width = 64;
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin * width; c < std::min(end * width, columns); c += width)
      sum_rows_part(sums + c, matrix + c, rows, columns, std::min(width, columns - c));
  };
  const std::int64_t strips = (columns + width - 1) / width;
  if (rows * columns <= grain) return part(0, strips);
  at::parallel_for(0, strips, 1, part);
}

void sum_pixels(float* sums, const float* images, std::int64_t count, std::int64_t channels,
                std::int64_t pixels, std::int64_t block) {
  std::fill_n(sums, channels, 0.0f);
  in_rows(channels / block, count * pixels * block, [&](std::int64_t at, std::int64_t n) {
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t c = at * block; c < (at + n) * block; c += block)
        sum_pixels_part(sums + c, images + (i * channels + c) * pixels, pixels, block);
  });
}

}  // namespace compiled
