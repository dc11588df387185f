#include "loops.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

#include "lanes.hpp"

namespace compiled {
namespace {

constexpr std::int64_t grain = 1 << 15;

// The loops of each kind of value; what stands behind them is compiled of these for each instruction set.
template <class T>
PART_OF_EACH void add_loop(T* total, const T* part, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) put(total[i], wide(total[i]) + wide(part[i]));
}
template <class T>
PART_OF_EACH void sum_loop(T* sum, const T* a, const T* b, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) put(sum[i], wide(a[i]) + wide(b[i]));
}
PART_OF_EACH void sum_relu_loop(float* sum, const float* a, const float* b, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = a[i] + b[i];
    sum[i] = x < 0.0f ? 0.0f : x;  // NaN stays
  }
}
// Those of halves look at the bits, as the compiler makes no vectors of them else: NaN is no negative number here either.
PART_OF_EACH bool is_negative(std::uint16_t bits) {
  return bits > 0x8000U && bits <= 0xff80U;
}
PART_OF_EACH void sum_relu_loop(Half* sum, const Half* a, const Half* b, std::int64_t count) {
  auto* const to = reinterpret_cast<std::uint16_t*>(sum);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    Half x{};
    put(x, wide(a[i]) + wide(b[i]));
    const auto bits = static_cast<std::uint16_t>(x);
    to[i] = static_cast<std::uint16_t>(bits & (static_cast<int>(is_negative(bits)) - 1));
  }
}
PART_OF_EACH void mask_loop(float* masked, const float* gradient, const float* output, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) masked[i] = output[i] <= 0.0f ? 0.0f : gradient[i];
}
PART_OF_EACH void mask_loop(Half* masked, const Half* gradient, const Half* output, std::int64_t count) {
  auto* const to = reinterpret_cast<std::uint16_t*>(masked);
  const auto* const from = reinterpret_cast<const std::uint16_t*>(gradient);
  const auto* const seen = reinterpret_cast<const std::uint16_t*>(output);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const bool ends = is_negative(seen[i]) || (seen[i] & 0x7fffU) == 0;
    to[i] = static_cast<std::uint16_t>(from[i] & (static_cast<int>(ends) - 1));
  }
}
template <class T>
PART_OF_EACH void sum_rows_loop(float* __restrict sums, const T* __restrict matrix, std::int64_t rows,
                                std::int64_t columns, std::int64_t count) {
  for (std::int64_t c = 0; c < count; ++c) sums[c] = 0.0f;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < count; ++c) sums[c] += wide(matrix[r * columns + c]);
}
template <class To, class From>
PART_OF_EACH void convert_loop(To* __restrict to, const From* __restrict from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) put(to[i], wide(from[i]));
}

TRAINYARD_FOR_EACH_ISA void add_part(float* total, const float* part, std::int64_t count) {
  add_loop(total, part, count);
}
TRAINYARD_FOR_EACH_ISA void sum_part(float* sum, const float* a, const float* b, std::int64_t count) {
  sum_loop(sum, a, b, count);
}
TRAINYARD_FOR_EACH_ISA void sum_relu_part(float* sum, const float* a, const float* b, std::int64_t count) {
  sum_relu_loop(sum, a, b, count);
}
TRAINYARD_FOR_EACH_ISA void mask_part(float* masked, const float* gradient, const float* output,
                                      std::int64_t count) {
  mask_loop(masked, gradient, output, count);
}
TRAINYARD_FOR_EACH_ISA void sum_rows_part(float* sums, const float* matrix, std::int64_t rows,
                                          std::int64_t columns, std::int64_t count) {
  sum_rows_loop(sums, matrix, rows, columns, count);
}
TRAINYARD_FOR_EACH_ISA void add_part(Half* total, const Half* part, std::int64_t count) {
  add_loop(total, part, count);
}
TRAINYARD_FOR_EACH_ISA void sum_part(Half* sum, const Half* a, const Half* b, std::int64_t count) {
  sum_loop(sum, a, b, count);
}
TRAINYARD_FOR_EACH_ISA void sum_relu_part(Half* sum, const Half* a, const Half* b, std::int64_t count) {
  sum_relu_loop(sum, a, b, count);
}
TRAINYARD_FOR_EACH_ISA void mask_part(Half* masked, const Half* gradient, const Half* output,
                                      std::int64_t count) {
  mask_loop(masked, gradient, output, count);
}
TRAINYARD_FOR_EACH_ISA void sum_rows_part(float* sums, const Half* matrix, std::int64_t rows,
                                          std::int64_t columns, std::int64_t count) {
  sum_rows_loop(sums, matrix, rows, columns, count);
}
TRAINYARD_FOR_EACH_ISA void widen_part(float* to, const Half* from, std::int64_t count) {
  convert_loop(to, from, count);
}
TRAINYARD_FOR_EACH_ISA void narrow_part(Half* to, const float* from, std::int64_t count) {
  convert_loop(to, from, count);
}

/// Of one block of channels of one image, added to what is there.
template <int block>
PART_OF_EACH void sum_block(float* __restrict sums, const float* __restrict image, std::int64_t pixels) {
  float found[block] = {};
  for (std::int64_t p = 0; p < pixels; ++p)
    for (int c = 0; c < block; ++c) found[c] += image[p * block + c];
  for (int c = 0; c < block; ++c) sums[c] += found[c];
}
TRAINYARD_FOR_EACH_ISA void sum_pixels_part(float* sums, const float* image, std::int64_t pixels,
                                            std::int64_t block) {
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

template <class T>
void add_into(T* total, const T* part, std::int64_t count) {
  in_parts(count, [&](std::int64_t at, std::int64_t n) { add_part(total + at, part + at, n); });
}

template <class T>
void add(T* sum, const T* a, const T* b, std::int64_t count) {
  in_parts(count, [&](std::int64_t at, std::int64_t n) { sum_part(sum + at, a + at, b + at, n); });
}

template <class T>
void add_relu(T* sum, const T* a, const T* b, std::int64_t count) {
  in_parts(count, [&](std::int64_t at, std::int64_t n) { sum_relu_part(sum + at, a + at, b + at, n); });
}

template <class T>
void through_relu(T* masked, const T* gradient, const T* output, std::int64_t count) {
  in_parts(count,
           [&](std::int64_t at, std::int64_t n) { mask_part(masked + at, gradient + at, output + at, n); });
}

/// Threads take columns, so that the order of the terms stays.
template <class T>
void sum_rows(float* sums, const T* matrix, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t width = 64;
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin * width; c < std::min(end * width, columns); c += width)
      sum_rows_part(sums + c, matrix + c, rows, columns, std::min(width, columns - c));
  };
  const std::int64_t strips = (columns + width - 1) / width;
  if (rows * columns <= grain) return part(0, strips);
  at::parallel_for(0, strips, 1, part);
}

template void add_into(float*, const float*, std::int64_t);
template void add(float*, const float*, const float*, std::int64_t);
template void add_relu(float*, const float*, const float*, std::int64_t);
template void through_relu(float*, const float*, const float*, std::int64_t);
template void sum_rows(float*, const float*, std::int64_t, std::int64_t);
template void add_into(Half*, const Half*, std::int64_t);
template void add(Half*, const Half*, const Half*, std::int64_t);
template void add_relu(Half*, const Half*, const Half*, std::int64_t);
template void through_relu(Half*, const Half*, const Half*, std::int64_t);
template void sum_rows(float*, const Half*, std::int64_t, std::int64_t);

void widen(float* to, const Half* from, std::int64_t count) {
  widen_part(to, from, count);
}

void narrow(Half* to, const float* from, std::int64_t count) {
  narrow_part(to, from, count);
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
