// This file is compiled once per instruction set, named by TRAINYARD_ISA. It includes no code that the linker
// could share with other units, as that code would be compiled for this set.
#include "kernels/cpu/linear_micro.hpp"

#include "kernels/cpu/tiles.hpp"

namespace trainyard::kernels {
namespace {

constexpr std::int64_t depth_most = 256;           // largest depth that is summed over at a time
constexpr std::int64_t row_gap = depth_most + 16;  // row stride of an `a` panel: an odd number of cache lines
constexpr std::int64_t strip_gap = depth_most + 1;  // distance of packed strips, in rows of a strip
constexpr std::int64_t panel_floats = most_rows * row_gap;

constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
constexpr std::int64_t larger(std::int64_t a, std::int64_t b) {
  return a < b ? b : a;
}
constexpr std::int64_t strips_of(std::int64_t columns) {
  return (columns + strip_width - 1) / strip_width;
}

/// A matrix that is read as it is, or as its transpose.
struct Factor {
  const float* data;
  std::int64_t stride;  ///< of the stored rows
  bool turned = false;
};

/// A product c = a b, which may be added to c or followed by bias and ReLU of a layer; c has no gaps.
struct Product {
  std::int64_t rows, columns, depth;
  Factor a, b;
  float* c;
  bool adds = false;
  const float* bias = nullptr;
  bool relu = false;
};

/// A tile of a few rows and one or two strips, over a panel of the depth.
struct Tile {
  const float* a;
  std::int64_t a_stride;  ///< in a transposed one: distance between steps of the sum
  const float* b;
  std::int64_t depth;
  float* c;
  std::int64_t c_stride;
  int rows, lanes;  ///< of the last strip
  const float* bias;
  bool adds, relu;
};

template <int strips>
void finish(const Tile& tile, const Vector* sums) {
  for (std::int64_t s = 0; s < strips; ++s) {
    const int lanes = s + 1 < strips ? strip_width : tile.lanes;
    Vector bias{};
    if (tile.bias != nullptr) load(bias, tile.bias + s * strip_width, lanes);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      float* const c = tile.c + r * tile.c_stride + s * strip_width;
      Vector sum = sums[r * strips + s];
      if (tile.adds) {
        Vector before;
        load(before, c, lanes);
        sum += before;
      }
      sum += bias;
      if (tile.relu) sum = sum < 0.0f ? Vector{} : sum;
      store(c, sum, lanes);
    }
  }
}

template <int rows, int strips, bool turned>
void compute(const Tile& tile) {
  Sums<rows, strips> sums;
  const float *a = tile.a, *b[strips];
  TRAINYARD_UNROLL
  for (int s = 0; s < strips; ++s) b[s] = tile.b + s * strip_gap * strip_width;
  for (std::int64_t k = 0; k < tile.depth; ++k) {
    sums.add(a, turned ? 1 : row_gap, b);
    a += turned ? tile.a_stride : 1;
    TRAINYARD_UNROLL
    for (int s = 0; s < strips; ++s) b[s] += strip_width;
  }
  Vector result[rows * strips];
  sums.write(result);
  finish<strips>(tile, result);
}

/// Computes a tile of at most `rows` rows.
template <int rows, bool turned>
void compute(const Tile& tile, bool is_pair) {
  if constexpr (rows > 1)
    if (tile.rows < rows) return compute<rows - 1, turned>(tile, is_pair);
  if constexpr (most_strips > 1)
    if (is_pair) return compute<rows, most_strips, turned>(tile);
  compute<rows, 1, turned>(tile);
}

/// Packs rows [first, first + depth) of b into strips.
void pack(float* to, const Factor& b, std::int64_t first, std::int64_t depth, std::int64_t columns) {
  for (std::int64_t strip = 0; strip < strips_of(columns); ++strip, to += strip_gap * strip_width) {
    const std::int64_t column = strip * strip_width;
    const auto lanes = static_cast<int>(smaller(strip_width, columns - column));
    if (b.turned) {
      transpose(to, b.data + column * b.stride + first, b.stride, lanes, depth);
      continue;
    }
    for (std::int64_t k = 0; k < depth; ++k) {
      Vector row;
      load(row, b.data + (first + k) * b.stride + column, lanes);
      *reinterpret_cast<Anywhere*>(to + k * strip_width) = row;
    }
  }
}

/// Packs a panel of all columns of b, which stays in the L2 cache while the rows of a pass, and repeats.
void multiply(const Product& p, float* scratch) {
  float* const panel = scratch;
  float* const packed = scratch + panel_floats;
  const std::int64_t tiles = (p.rows + most_rows - 1) / most_rows;
  for (std::int64_t first = 0; first < p.depth; first += depth_most) {
    const std::int64_t depth = smaller(depth_most, p.depth - first);
    const bool is_last = first + depth == p.depth;
    pack(packed, p.b, first, depth, p.columns);
    for (std::int64_t i = 0; i < tiles; ++i) {
      const std::int64_t row = p.rows * i / tiles;
      Tile tile{.a = panel,
                .a_stride = p.a.stride,
                .b = packed,
                .depth = depth,
                .c = p.c + row * p.columns,
                .c_stride = p.columns,
                .rows = static_cast<int>(p.rows * (i + 1) / tiles - row),
                .lanes = strip_width,
                .bias = nullptr,
                .adds = p.adds || first > 0,
                .relu = p.relu && is_last};
      if (p.a.turned)
        tile.a = p.a.data + first * p.a.stride + row;
      else
        for (std::int64_t r = 0; r < tile.rows; ++r)
          __builtin_memcpy(panel + r * row_gap, p.a.data + (row + r) * p.a.stride + first,
                           static_cast<std::size_t>(depth) * sizeof(float));
      for (std::int64_t column = 0; column < p.columns;) {
        const std::int64_t width = smaller(p.columns - column, std::int64_t{most_strips} * strip_width);
        const bool is_pair = width > strip_width;
        tile.lanes = static_cast<int>(width - (is_pair ? strip_width : 0));
        tile.b = packed + column * strip_gap;
        tile.c = p.c + row * p.columns + column;
        if (p.bias != nullptr && is_last) tile.bias = p.bias + column;
        p.a.turned ? compute<most_rows, true>(tile, is_pair) : compute<most_rows, false>(tile, is_pair);
        column += width;
      }
    }
  }
}

std::int64_t scratch_floats(const LinearShape& shape) {
  const std::int64_t strips = strips_of(larger(shape.in, shape.out));
  return panel_floats + strips * strip_gap * strip_width + (shape.relu ? shape.rows * shape.out : 0);
}

void forward(const LinearForward& what) {
  const LinearShape& s = what.shape;
  multiply({.rows = s.rows,
            .columns = s.out,
            .depth = s.in,
            .a = {what.x, s.in},
            .b = {what.weight, s.in, true},
            .c = what.y,
            .bias = what.bias,
            .relu = s.relu},
           what.scratch);
}

void through_relu(float* __restrict to, const float* __restrict given, const float* __restrict y,
                  std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = given[i];
    to[i] = y[i] <= 0.0f ? 0.0f : value;
  }
}

void sum_rows(float* __restrict to, const float* __restrict from, std::int64_t rows, std::int64_t columns,
              bool adds) {
  for (std::int64_t c = 0; !adds && c < columns; ++c) to[c] = 0.0f;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) to[c] += from[r * columns + c];
}

void backward(const LinearBackward& what) {
  const LinearShape& s = what.shape;
  const float* dz = what.given;
  float* scratch = what.scratch;
  if (s.relu) {
    through_relu(scratch, what.given, what.y, s.rows * s.out);
    dz = scratch;
    scratch += s.rows * s.out;
  }
  if (what.bias_gradient != nullptr) sum_rows(what.bias_gradient, dz, s.rows, s.out, what.adds_bias);
  if (what.weight_gradient != nullptr)
    multiply({.rows = s.out,
              .columns = s.in,
              .depth = s.rows,
              .a = {dz, s.out, true},
              .b = {what.x, s.in},
              .c = what.weight_gradient,
              .adds = what.adds_weight},
             scratch);
  if (what.x_gradient != nullptr)
    multiply({.rows = s.rows,
              .columns = s.in,
              .depth = s.out,
              .a = {dz, s.out},
              .b = {what.weight, s.in},
              .c = what.x_gradient},
             scratch);
}

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(linear_, isa)
const LinearKernels TRAINYARD_NAME(TRAINYARD_ISA) = {scratch_floats, forward, backward};

}  // namespace trainyard::kernels
