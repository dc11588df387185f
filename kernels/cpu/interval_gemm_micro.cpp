// Compiled once for each instruction set, with TRAINYARD_ISA its name, and for any rounding mode. Includes
// nothing of which other units could take their copy: that would be compiled for this set.
#include "kernels/cpu/interval_gemm_micro.hpp"

#include "kernels/cpu/registers.hpp"

namespace trainyard::kernels {
namespace {

typedef double Vector __attribute__((vector_size(register_bytes)));
typedef double Anywhere __attribute__((vector_size(register_bytes), aligned(8), may_alias));
constexpr std::int64_t lanes = register_bytes / 8;
constexpr int tile_rows = 4, tile_vectors = register_bytes == 64 ? 2 : 1;
constexpr std::int64_t tile_columns = tile_vectors * lanes;

#define TRAINYARD_UNROLL _Pragma("GCC unroll 8")

// No function gives or takes a vector by value: how is another matter for each instruction set.
inline void read(Vector& to, const double* from) {
  to = *reinterpret_cast<const Anywhere*>(from);
}
inline void write(double* to, const Vector& from) {
  *reinterpret_cast<Anywhere*>(to) = from;
}

/// For the interval [-low, up] times w: up to [-w low, w up] where w is no less than 0, and to [-|w| up, |w|
/// low] elsewhere. All of a tile, `columns` of its columns being real.
template <int Rows>
void tile(std::int64_t inner, std::int64_t columns, std::int64_t real, ConstIntervalRows a,
          const double* weights, const bool* skip, IntervalRows out) {
  double edge[2][Rows][tile_columns] = {}, padded[tile_columns] = {};
  const bool whole = real == tile_columns;
  Vector low[Rows][tile_vectors], up[Rows][tile_vectors];
  for (int r = 0; r < Rows; ++r) {
    for (std::int64_t c = 0; c < real && !whole; ++c) {
      edge[0][r][c] = out.low[r * columns + c];
      edge[1][r][c] = out.up[r * columns + c];
    }
    TRAINYARD_UNROLL for (int v = 0; v < tile_vectors; ++v) {
      read(low[r][v], (whole ? out.low + r * columns : edge[0][r]) + v * lanes);
      read(up[r][v], (whole ? out.up + r * columns : edge[1][r]) + v * lanes);
    }
  }
  for (std::int64_t k = 0; k < inner; ++k) {
    if (skip[k]) continue;
    const double* w = weights + k * columns;
    if (!whole) {
      for (std::int64_t c = 0; c < real; ++c) padded[c] = w[c];
      w = padded;
    }
    TRAINYARD_UNROLL for (int v = 0; v < tile_vectors; ++v) {
      Vector weight;
      read(weight, w + v * lanes);
      const auto positive = weight >= 0.0;
      const Vector size = positive ? weight : -weight;
      TRAINYARD_UNROLL for (int r = 0; r < Rows; ++r) {
        const Vector l = Vector{} + a.low[r * inner + k], u = Vector{} + a.up[r * inner + k];
        low[r][v] += (positive ? l : u) * size;
        up[r][v] += (positive ? u : l) * size;
      }
    }
  }
  for (int r = 0; r < Rows; ++r) {
    TRAINYARD_UNROLL for (int v = 0; v < tile_vectors; ++v) {
      write((whole ? out.low + r * columns : edge[0][r]) + v * lanes, low[r][v]);
      write((whole ? out.up + r * columns : edge[1][r]) + v * lanes, up[r][v]);
    }
    for (std::int64_t c = 0; c < real && !whole; ++c) {
      out.low[r * columns + c] = edge[0][r][c];
      out.up[r * columns + c] = edge[1][r][c];
    }
  }
}

constexpr std::int64_t block = 512;  // inner indices at a time, whose `skip` lies on the stack

template <int Rows>
std::int64_t band(std::int64_t inner, std::int64_t columns, ConstIntervalRows a, const double* weights,
                  IntervalRows out, std::int64_t stride) {
  bool skip[block];
  double low[Rows * block], up[Rows * block];
  std::int64_t used = 0;
  for (std::int64_t k = 0; k < inner; ++k) {
    bool zero = true;
    for (int r = 0; r < Rows; ++r) {
      low[r * inner + k] = a.low[r * stride + k];
      up[r * inner + k] = a.up[r * stride + k];
      zero = zero && low[r * inner + k] == 0.0 && up[r * inner + k] == 0.0;
    }
    skip[k] = zero;
    used += zero ? 0 : 1;
  }
  for (std::int64_t c = 0; c < columns && used > 0; c += tile_columns)
    tile<Rows>(inner, columns, columns - c < tile_columns ? columns - c : tile_columns, {low, up},
               weights + c, skip, {out.low + c, out.up + c});
  return used * Rows * columns;
}

}  // namespace

#define TRAINYARD_NAME_OF(isa) interval_gemm_##isa
#define TRAINYARD_NAME(isa) TRAINYARD_NAME_OF(isa)

std::int64_t TRAINYARD_NAME(TRAINYARD_ISA)(std::int64_t rows, std::int64_t inner, std::int64_t columns,
                                           ConstIntervalRows a, const double* weights, IntervalRows out) {
  std::int64_t done = 0;
  for (std::int64_t k = 0; k < inner; k += block) {
    const std::int64_t some = inner - k < block ? inner - k : block;
    for (std::int64_t r = 0; r < rows; r += tile_rows) {
      const ConstIntervalRows from{a.low + r * inner + k, a.up + r * inner + k};
      const IntervalRows to{out.low + r * columns, out.up + r * columns};
      const double* const w = weights + k * columns;
      switch (rows - r) {
        case 1: done += band<1>(some, columns, from, w, to, inner); break;
        case 2: done += band<2>(some, columns, from, w, to, inner); break;
        case 3: done += band<3>(some, columns, from, w, to, inner); break;
        default: done += band<tile_rows>(some, columns, from, w, to, inner);
      }
    }
  }
  return done;
}

}  // namespace trainyard::kernels
