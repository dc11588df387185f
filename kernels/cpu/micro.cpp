// Compiled once for each instruction set, with TRAINYARD_ISA its name. Includes nothing of which other units
// could take their copy: that would be compiled for this set.
#include "kernels/cpu/micro.hpp"

namespace trainyard::kernels {
namespace {

typedef float Vector __attribute__((vector_size(64)));
typedef std::int32_t Mask __attribute__((vector_size(64)));
typedef float Anywhere __attribute__((vector_size(64), aligned(4), may_alias));
typedef std::int32_t MaskAnywhere __attribute__((vector_size(64), aligned(4), may_alias));

// Tiles whose sums, and what is multiplied, fit in the registers.
#if defined(__AVX512F__)
constexpr int most_rows = 14, most_strips = 2, most_outer_rows = 16, register_bytes = 64;
#elif defined(__AVX2__)
constexpr int most_rows = 6, most_strips = 1, most_outer_rows = 6, register_bytes = 32;
#else
constexpr int most_rows = 2, most_strips = 1, most_outer_rows = 2, register_bytes = 16;
#endif
typedef float Register __attribute__((vector_size(register_bytes)));
typedef float RegisterAnywhere __attribute__((vector_size(register_bytes), aligned(4), may_alias));
constexpr int parts = strip_width * static_cast<int>(sizeof(float)) / register_bytes;  // of a row of a strip

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

/// What is done once to the sums of a tile, which lie in memory from here on: with it in their loops, the
/// compiler does not keep them in registers.
void finish(const ProductTile& tile, const Vector* sums) {
  for (int s = 0; s < tile.b.strips; ++s) {
    const int lanes = tile.b.lanes[s];
    Vector bias{};
    if (tile.last && tile.bias[s] != nullptr) load(bias, tile.bias[s], lanes);
    for (int r = 0; r < tile.rows; ++r) {
      float* const c = tile.c[s] + r * tile.c_stride;
      Vector sum = sums[r * tile.b.strips + s];
      if (!tile.first) {
        Vector before;
        load(before, c, lanes);
        sum += before;
      }
      if (tile.last) {
        sum += bias;
        if (tile.relu) sum = sum < 0.0f ? Vector{} : sum;
        sum *= tile.scale;
        const Mask keep = *reinterpret_cast<const MaskAnywhere*>(tile.keep[s]);
        sum = reinterpret_cast<Vector>(reinterpret_cast<Mask>(sum) & keep);
      }
      store(c, sum, lanes);
    }
  }
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

template <int rows, int strips>
void product_tile(const ProductTile& tile) {
  Sums<rows, strips> sums;
  const float* a = tile.a;
  for (std::int64_t i = 0; i < tile.runs.count; ++i) {
    const Run run = tile.runs.first[i];
    const float *b[strips], *next[strips];
    TRAINYARD_UNROLL
    for (int s = 0; s < strips; ++s) {
      b[s] = tile.b.packed[s] + run.begin * strip_width;
      next[s] = tile.next[s] + run.begin * strip_width;
    }
    for (std::int64_t k = 0; k < run.length; ++k) {
      sums.add(a++, ProductTile::stride, b);
      TRAINYARD_UNROLL
      for (int s = 0; s < strips; ++s) {
        __builtin_prefetch(next[s], 0, 2);
        next[s] += strip_width;
        b[s] += strip_width;
      }
    }
  }
  Vector result[rows * strips];
  sums.write(result);
  finish(tile, result);
}

template <int rows, int strips>
void outer_tile(const OuterTile& tile) {
  Sums<rows, strips> sums;
  for (std::int64_t i = 0; i < tile.runs.count; ++i) {
    const Run run = tile.runs.first[i];
    const float* a = tile.a + run.begin * tile.a_stride;
    const float* b[strips];
    TRAINYARD_UNROLL
    for (int s = 0; s < strips; ++s) b[s] = tile.b.packed[s] + run.begin * strip_width;
    for (std::int64_t k = 0; k < run.length; ++k, a += tile.a_stride) {
      sums.add(a, 1, b);
      TRAINYARD_UNROLL
      for (int s = 0; s < strips; ++s) b[s] += strip_width;
    }
  }
  Vector result[rows * strips];
  sums.write(result);
  for (int r = 0; r < rows; ++r)
    for (int s = 0; s < strips; ++s)
      store(tile.c + r * tile.c_stride + std::int64_t{s} * strip_width, result[r * strips + s],
            tile.b.lanes[s]);
}

/// Calls the tile of so many rows.
template <int rows>
void product_rows(const ProductTile& tile) {
  if constexpr (rows > 1)
    if (tile.rows < rows) return product_rows<rows - 1>(tile);
  if constexpr (most_strips > 1)
    if (tile.b.strips > 1) return product_tile<rows, most_strips>(tile);
  product_tile<rows, 1>(tile);
}

template <int rows>
void outer_rows(const OuterTile& tile) {
  if constexpr (rows > 1)
    if (tile.rows < rows) return outer_rows<rows - 1>(tile);
  if constexpr (most_strips > 1 && rows <= most_rows)
    if (tile.b.strips > 1) return outer_tile<rows, most_strips>(tile);
  outer_tile<rows, 1>(tile);
}

/// A perfect shuffle of 16 x 16 numbers: what is at row r, column c of the 256 moves from place 16 r + c to
/// its digits rotated by one. Four of them exchange rows and columns.
inline void shuffle(Vector (&to)[16], const Vector (&from)[16]) {
  TRAINYARD_UNROLL
  for (std::int64_t i = 0; i < 8; ++i) {
    to[2 * i] =
        __builtin_shufflevector(from[i], from[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    to[2 * i + 1] = __builtin_shufflevector(from[i], from[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                            29, 14, 30, 15, 31);
  }
}

void transpose(float* to, const float* from, std::int64_t stride, int lanes, std::int64_t columns) {
  std::int64_t column = 0;
  for (; lanes == strip_width && column + strip_width <= columns; column += strip_width) {
    Vector x[16], y[16];
    TRAINYARD_UNROLL
    for (int i = 0; i < 16; ++i) x[i] = *reinterpret_cast<const Anywhere*>(from + i * stride + column);
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

void scaled(float* __restrict to, const float* __restrict from, const float* __restrict y, float scale,
            std::int64_t count) {
  if (y == nullptr) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] * scale;
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = from[i] * scale;
    to[i] = y[i] <= 0.0f ? 0.0f : value;
  }
}

void add(float* __restrict to, const float* __restrict from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
}

void kept(float* to, const float* from, const std::int32_t* keep, int lanes) {
  Vector value;
  load(value, from, lanes);
  const Mask mask = *reinterpret_cast<const MaskAnywhere*>(keep);
  *reinterpret_cast<Anywhere*>(to) = reinterpret_cast<Vector>(reinterpret_cast<Mask>(value) & mask);
}

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(micro_, isa)
const Micro TRAINYARD_NAME(TRAINYARD_ISA) = {most_rows,
                                             most_strips,
                                             most_outer_rows,
                                             product_rows<most_rows>,
                                             outer_rows<most_outer_rows>,
                                             transpose,
                                             scaled,
                                             add,
                                             kept};

}  // namespace trainyard::kernels
