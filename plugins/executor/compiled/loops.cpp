#include "loops.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
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

/// e^x to two units in the last place: 2^n times a polynomial of what is left, |r| <= ln 2 / 2 (Cephes' expf).
PART_OF_EACH float exponential(float x) {
  x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
  const float n = __builtin_rintf(x * 1.44269504f);
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return p * __builtin_bit_cast(float, (static_cast<std::int32_t>(n) + 127) << 23);
}

constexpr std::int64_t lanes = 16;  ///< of a sum, so that its order does not depend on the processor

PART_OF_EACH float largest(const float* row, std::int64_t count) {
  float most[lanes];
  for (float& each : most) each = row[0];
  std::int64_t j = 0;
  for (; j + lanes <= count; j += lanes)
    for (std::int64_t k = 0; k < lanes; ++k) most[k] = row[j + k] > most[k] ? row[j + k] : most[k];
  for (; j < count; ++j) most[0] = row[j] > most[0] ? row[j] : most[0];
  return *std::max_element(most, most + lanes);
}

PART_OF_EACH float sum_of(const float* row, std::int64_t count) {
  float sums[lanes] = {};
  std::int64_t j = 0;
  for (; j + lanes <= count; j += lanes)
    for (std::int64_t k = 0; k < lanes; ++k) sums[k] += row[j + k];
  float sum = 0.0f;
  for (; j < count; ++j) sum += row[j];
  for (const float each : sums) sum += each;
  return sum;
}

/// What row i of a causal matrix has.
PART_OF_EACH std::int64_t entries(const ScoreRows& scores, std::int64_t i) {
  return scores.causal ? std::min(scores.number + i + 1, scores.columns) : scores.columns;
}

FOR_EACH_ISA void row_products_part(float* products, const float* a, const float* b, std::int64_t rows,
                                    std::int64_t columns, std::int64_t stride) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* const one = a + i * stride;
    const float* const other = b + i * stride;
    float sums[lanes] = {};
    std::int64_t j = 0;
    for (; j + lanes <= columns; j += lanes)
      for (std::int64_t k = 0; k < lanes; ++k) sums[k] += one[j + k] * other[j + k];
    float sum = 0.0f;
    for (; j < columns; ++j) sum += one[j] * other[j];
    for (const float each : sums) sum += each;
    products[i] = sum;
  }
}

FOR_EACH_ISA void softmax_part(const ScoreRows& scores, float* logs, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    float* const row = scores.first + i * scores.stride;
    const std::int64_t count = entries(scores, i);
    const float most = largest(row, count);
#pragma GCC ivdep
    for (std::int64_t j = 0; j < count; ++j) row[j] = exponential(scores.factor * (row[j] - most));
    const float sum = sum_of(row, count);
    const float share = 1.0f / sum;
    for (std::int64_t j = 0; j < count; ++j) row[j] *= share;
    for (std::int64_t j = count; j < scores.columns; ++j) row[j] = 0.0f;
    logs[i] = scores.factor * most + std::log(sum);
  }
}

FOR_EACH_ISA void softmax_again_part(const ScoreRows& scores, const float* logs, std::int64_t begin,
                                     std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    float* const row = scores.first + i * scores.stride;
    const std::int64_t count = entries(scores, i);
    const float log = logs[i];
#pragma GCC ivdep
    for (std::int64_t j = 0; j < count; ++j) row[j] = exponential(scores.factor * row[j] - log);
    for (std::int64_t j = count; j < scores.columns; ++j) row[j] = 0.0f;
  }
}

FOR_EACH_ISA void through_softmax_part(const ScoreRows& weights, const float* gradient, const float* inner,
                                       std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    float* const row = weights.first + i * weights.stride;
    const float* const given = gradient + i * weights.stride;
    const float middle = inner[i];
#pragma GCC ivdep
    for (std::int64_t j = 0; j < weights.columns; ++j) row[j] *= weights.factor * (given[j] - middle);
  }
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

void row_products(float* products, const float* a, const float* b, std::int64_t rows, std::int64_t columns,
                  std::int64_t stride) {
  in_rows(rows, columns, [&](std::int64_t at, std::int64_t n) {
    row_products_part(products + at, a + at * stride, b + at * stride, n, columns, stride);
  });
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

void softmax_rows(const ScoreRows& scores, float* logs) {
  in_rows(scores.rows, scores.columns,
          [&](std::int64_t at, std::int64_t n) { softmax_part(scores, logs, at, at + n); });
}

void softmax_again(const ScoreRows& scores, const float* logs) {
  in_rows(scores.rows, scores.columns,
          [&](std::int64_t at, std::int64_t n) { softmax_again_part(scores, logs, at, at + n); });
}

void through_softmax(const ScoreRows& weights, const float* gradient, const float* inner) {
  in_rows(weights.rows, weights.columns, [&](std::int64_t at, std::int64_t n) {
    through_softmax_part(weights, gradient, inner, at, at + n);
  });
}

}  // namespace compiled
