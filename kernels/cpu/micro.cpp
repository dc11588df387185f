// This file is compiled once per instruction set, named by TRAINYARD_ISA. It includes no code that the linker
// could share with other units, as that code would be compiled for this set.
#include "kernels/cpu/micro.hpp"

#include "kernels/cpu/tiles.hpp"

namespace trainyard::kernels {
namespace {

/// Finishes the sums of a tile, which lie in memory from here on: with this code in their loops, the compiler
/// does not keep them in registers.
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

/// Calls the tile of at most `rows` rows.
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
