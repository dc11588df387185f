// This file is compiled once per instruction set, named by TRAINYARD_ISA. It includes no code that the linker
// could share with other units, as that code would be compiled for this set.
#include "kernels/cpu/rows_micro.hpp"

namespace trainyard::kernels {
namespace {

typedef float Vector __attribute__((vector_size(64)));
typedef float Anywhere __attribute__((vector_size(64), aligned(4), may_alias));
constexpr std::int64_t lanes = 16;

#if defined(__AVX512F__)
constexpr int most_dots = 8, most_blocks = 8;  // sums that fit in the registers
#elif defined(__AVX2__)
constexpr int most_dots = 4, most_blocks = 4;
#else
constexpr int most_dots = 2, most_blocks = 2;
#endif
constexpr std::int64_t ahead = 8;  // rows fetched before they are used

#define TRAINYARD_UNROLL _Pragma("GCC unroll 16")

// No function passes or returns a vector by value, as conventions differ between instruction sets.
inline const Anywhere& at(const float* from) {
  return *reinterpret_cast<const Anywhere*>(from);
}

typedef std::uint32_t Words __attribute__((vector_size(64)));
typedef std::uint16_t Halves __attribute__((vector_size(32), aligned(2), may_alias));

inline void read(Vector& to, const float* from) {
  to = at(from);
}
inline void read(Vector& to, const std::uint16_t* from) {
  const Words words = __builtin_convertvector(*reinterpret_cast<const Halves*>(from), Words) << 16;
  to = __builtin_bit_cast(Vector, words);
}

inline float number(float from) {
  return from;
}
inline float number(std::uint16_t from) {
  return __builtin_bit_cast(float, std::uint32_t{from} << 16);
}

inline float total(const Vector& sums) {
  Vector v = sums;
  v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  v += __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  return v[0];
}

/// Loads the last 16 numbers of x, with zeros for those that belong to whole vectors before them, so that
/// rows whose width is no multiple of 16 are not read beyond their end.
inline void read_rest(Vector& rest, const float* x, std::int64_t width) {
  rest = at(x + width - lanes);
  for (std::int64_t i = 0; i < lanes - width % lanes; ++i) rest[i] = 0.0f;
}

template <int count, class Matrix>
inline void dot_rows(float* out, const float* x, const Vector& rest, Matrix matrix, const std::int64_t* rows,
                     const std::int64_t* next) {
  decltype(matrix.data) row[count], fetched[count];
  Vector sums[count];
  TRAINYARD_UNROLL
  for (int r = 0; r < count; ++r) {
    row[r] = matrix.data + rows[r] * matrix.width;
    fetched[r] = matrix.data + next[r] * matrix.width;
    sums[r] = Vector{};
  }
  std::int64_t k = 0;
  for (; k + lanes <= matrix.width; k += lanes) {
    const Vector part = at(x + k);
    TRAINYARD_UNROLL
    for (int r = 0; r < count; ++r) {
      Vector numbers;
      read(numbers, row[r] + k);
      sums[r] += part * numbers;
      __builtin_prefetch(fetched[r] + k);
    }
  }
  if (k < matrix.width) {
    TRAINYARD_UNROLL
    for (int r = 0; r < count; ++r) {
      Vector numbers;
      read(numbers, row[r] + matrix.width - lanes);
      sums[r] += rest * numbers;
      __builtin_prefetch(fetched[r] + k);
    }
  }
  TRAINYARD_UNROLL
  for (int r = 0; r < count; ++r) out[r] = total(sums[r]);
}

template <class Matrix>
void narrow_dots(float* out, const float* x, Matrix matrix, const std::int64_t* rows, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto* const row = matrix.data + rows[i] * matrix.width;
    float sum = 0.0f;
    for (std::int64_t k = 0; k < matrix.width; ++k) sum += x[k] * number(row[k]);
    out[i] = sum;
  }
}

template <class Matrix>
void dots(float* out, const float* x, Matrix matrix, const std::int64_t* rows, std::int64_t count) {
  if (matrix.width < lanes) return narrow_dots(out, x, matrix, rows, count);
  Vector rest{};
  if (matrix.width % lanes != 0) read_rest(rest, x, matrix.width);
  std::int64_t i = 0;
  for (; i + most_dots <= count; i += most_dots)
    dot_rows<most_dots>(out + i, x, rest, matrix, rows + i,
                        i + ahead + most_dots <= count ? rows + i + ahead : rows + i);
  for (; i < count; ++i) dot_rows<1>(out + i, x, rest, matrix, rows + i, rows + i);
}

/// Computes columns [column, column + 16 blocks) of the sum.
template <int blocks, class Matrix>
void sum_columns(float* out, const float* first, const float* scales, Matrix matrix, const std::int64_t* rows,
                 std::int64_t count, std::int64_t column) {
  Vector sums[blocks];
  TRAINYARD_UNROLL
  for (int b = 0; b < blocks; ++b) {
    sums[b] = Vector{};
    if (first != nullptr) sums[b] = at(first + column + b * lanes);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const auto* const row = matrix.data + rows[i] * matrix.width + column;
    const auto* const next = matrix.data + rows[i + ahead < count ? i + ahead : i] * matrix.width + column;
    const float scale = scales[i];
    TRAINYARD_UNROLL
    for (int b = 0; b < blocks; ++b) {
      Vector numbers;
      read(numbers, row + b * lanes);
      sums[b] += scale * numbers;
      __builtin_prefetch(next + b * lanes);
    }
  }
  TRAINYARD_UNROLL
  for (int b = 0; b < blocks; ++b) *reinterpret_cast<Anywhere*>(out + column + b * lanes) = sums[b];
}

/// Computes the columns that are left, at most those of `blocks`; returns where they end.
template <int blocks, class Matrix>
std::int64_t sum_some(float* out, const float* first, const float* scales, Matrix matrix,
                      const std::int64_t* rows, std::int64_t count, std::int64_t column) {
  if constexpr (blocks > 1)
    if (column + blocks * lanes > matrix.width)
      return sum_some<blocks - 1>(out, first, scales, matrix, rows, count, column);
  sum_columns<blocks>(out, first, scales, matrix, rows, count, column);
  return column + blocks * lanes;
}

template <class Matrix>
void narrow_sum(float* out, const float* first, const float* scales, Matrix matrix, const std::int64_t* rows,
                std::int64_t count) {
  for (std::int64_t k = 0; k < matrix.width; ++k) out[k] = first == nullptr ? 0.0f : first[k];
  for (std::int64_t i = 0; i < count; ++i) {
    const auto* const row = matrix.data + rows[i] * matrix.width;
    for (std::int64_t k = 0; k < matrix.width; ++k) out[k] += scales[i] * number(row[k]);
  }
}

template <class Matrix>
void sum(float* out, const float* first, const float* scales, Matrix matrix, const std::int64_t* rows,
         std::int64_t count) {
  if (matrix.width < lanes) return narrow_sum(out, first, scales, matrix, rows, count);
  std::int64_t column = 0;
  while (column + lanes <= matrix.width)
    column = sum_some<most_blocks>(out, first, scales, matrix, rows, count, column);
  // Computes the last 16 columns, some of them again: the same numbers in the same order give the same bits.
  if (column < matrix.width) sum_columns<1>(out, first, scales, matrix, rows, count, matrix.width - lanes);
}

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(rows_, isa)
const RowKernels TRAINYARD_NAME(TRAINYARD_ISA) = {dots<RowMatrix>, sum<RowMatrix>, dots<HalfMatrix>,
                                                  sum<HalfMatrix>};

}  // namespace trainyard::kernels
