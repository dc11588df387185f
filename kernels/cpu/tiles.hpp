// Tiles of matrix products in registers, for units that are compiled once for each instruction set: each gets a copy
// of its own, and no function gives or takes a vector by value.
#pragma once

#include "kernels/cpu/micro.hpp"

namespace trainyard::kernels {
namespace {

typedef float Vector __attribute__((vector_size(64)));
typedef std::int32_t Mask __attribute__((vector_size(64)));
typedef float Anywhere __attribute__((vector_size(64), aligned(4), may_alias));
typedef std::int32_t MaskAnywhere __attribute__((vector_size(64), aligned(4), may_alias));

// The sums and factors of these tiles fit in the registers.
#if defined(__AVX512F__)
inline constexpr int most_rows = 14, most_strips = 2, most_outer_rows = 16, register_bytes = 64;
#elif defined(__AVX2__)
inline constexpr int most_rows = 6, most_strips = 1, most_outer_rows = 6, register_bytes = 32;
#else
inline constexpr int most_rows = 2, most_strips = 1, most_outer_rows = 2, register_bytes = 16;
#endif
typedef float Register __attribute__((vector_size(register_bytes)));
typedef float RegisterAnywhere __attribute__((vector_size(register_bytes), aligned(4), may_alias));
inline constexpr int parts =
    strip_width * static_cast<int>(sizeof(float)) / register_bytes;  // of a row of a strip

#define TRAINYARD_UNROLL _Pragma("GCC unroll 16")

inline void load(Vector& to, const float* from, int lanes) {
  if (lanes == strip_width) {
    to = *reinterpret_cast<const Anywhere*>(from);
    return;
  }
  float padded[strip_width] = {};
  for (int i = 0; i < lanes; ++i) padded[i] = from[i];
  to = *reinterpret_cast<const Anywhere*>(padded);
}

inline void store(float* to, const Vector& from, int lanes) {
  if (lanes == strip_width) {
    *reinterpret_cast<Anywhere*>(to) = from;
    return;
  }
  float padded[strip_width];
  *reinterpret_cast<Anywhere*>(padded) = from;
  for (int i = 0; i < lanes; ++i) to[i] = padded[i];
}

/// sums[row][strip] += a[row] b[strip], over a row k of strips.
template <int rows, int strips>
struct Sums {
  static constexpr int columns = strips * parts;
  Register sums[rows][columns];

  Sums() {
    TRAINYARD_UNROLL
    for (int r = 0; r < rows; ++r) TRAINYARD_UNROLL
    for (int c = 0; c < columns; ++c) sums[r][c] = Register{};
  }
  void add(const float* a, std::int64_t a_stride, const float* const (&b)[strips]) {
    Register row[columns];
    TRAINYARD_UNROLL
    for (int c = 0; c < columns; ++c)
      row[c] = reinterpret_cast<const RegisterAnywhere*>(b[c / parts])[c % parts];
    TRAINYARD_UNROLL
    for (int r = 0; r < rows; ++r) TRAINYARD_UNROLL
    for (int c = 0; c < columns; ++c) sums[r][c] += a[r * a_stride] * row[c];
  }
  void write(Vector* to) const {
    TRAINYARD_UNROLL
    for (int r = 0; r < rows; ++r) TRAINYARD_UNROLL
    for (int c = 0; c < columns; ++c) reinterpret_cast<RegisterAnywhere*>(to)[r * columns + c] = sums[r][c];
  }
};

/// Shuffles 16 x 16 numbers perfectly: the number at row r, column c of the 256 moves from place 16 r + c to
/// that place with its bits rotated by one. Four shuffles exchange rows and columns.
inline void shuffle(Vector (&to)[16], const Vector (&from)[16]) {
  TRAINYARD_UNROLL
  for (std::int64_t i = 0; i < 8; ++i) {
    to[2 * i] =
        __builtin_shufflevector(from[i], from[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    to[2 * i + 1] = __builtin_shufflevector(from[i], from[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                            29, 14, 30, 15, 31);
  }
}

inline void transpose(float* to, const float* from, std::int64_t stride, int lanes, std::int64_t columns) {
  std::int64_t column = 0;
  for (; column + strip_width <= columns; column += strip_width) {
    Vector x[16], y[16];
    TRAINYARD_UNROLL
    for (int i = 0; i < 16; ++i) {
      x[i] = Vector{};
      if (i < lanes) x[i] = *reinterpret_cast<const Anywhere*>(from + i * stride + column);
    }
    shuffle(y, x);
    shuffle(x, y);
    shuffle(y, x);
    shuffle(x, y);
    TRAINYARD_UNROLL
    for (int i = 0; i < 16; ++i) *reinterpret_cast<Anywhere*>(to + (column + i) * strip_width) = x[i];
  }
  for (; column < columns; ++column)
    for (std::int64_t lane = 0; lane < strip_width; ++lane)
      to[column * strip_width + lane] = lane < lanes ? from[lane * stride + column] : 0.0f;
}

}  // namespace
}  // namespace trainyard::kernels
