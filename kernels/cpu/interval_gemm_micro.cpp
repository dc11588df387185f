// This file is compiled once per instruction set, named by TRAINYARD_ISA, for any rounding mode. It includes
// no code that the linker could share with other units, as that code would be compiled for this set.
#include "kernels/cpu/interval_gemm_micro.hpp"

#include "kernels/cpu/registers.hpp"

namespace trainyard::kernels {
namespace {

typedef double Vector __attribute__((vector_size(register_bytes)));
typedef double Anywhere __attribute__((vector_size(register_bytes), aligned(8), may_alias));
constexpr std::int64_t lanes = register_bytes / 8;
constexpr int tile_rows = 4, tile_vectors = register_bytes == 64 ? 2 : 1;
constexpr std::int64_t tile_columns = tile_vectors * lanes;

template <int N>
struct Count {
  static constexpr int value = N;
};

#define TRAINYARD_UNROLL _Pragma("GCC unroll 8")

// No function passes or returns a vector by value, as conventions differ between instruction sets.
inline void read(Vector& to, const double* from) {
  to = *reinterpret_cast<const Anywhere*>(from);
}
inline void write(double* to, const Vector& from) {
  *reinterpret_cast<Anywhere*>(to) = from;
}

// A coefficient in [-l, u] times w is [-low, up] with low = (|w| (l + u) + w (l - u)) / 2 and up = (|w| (l + u) - w (l - u)) / 2,
// whatever the sign of w: two multiply-adds, and no choice between ends. The sums of |w| (l + u) are rounded outward
// by rounding up. Those of w (l - u) stand in both ends with both signs, so that no rounding is outward: they may be
// off by gamma(n) times the sum of |w| |l - u| (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section
// 3.1), which is added to l + u; and by the smallest number there is for each product that underflows.

constexpr std::int64_t block = 256;  ///< inner indices in one pass
constexpr int most_bands = 16;       ///< bands that share the same weights while these are in the cache

/// A band of rows, by their coefficients at the inner indices of a block.
struct Band {
  double sum[tile_rows * block], difference[tile_rows * block];  ///< l + u and l - u: [inner index][row]
  bool skip[block];                                              ///< all of them are 0
  std::int64_t used;                                             ///< number of indices that are not skipped
};

/// Packs a band. `unit` is that of rounding, or 0 where nothing is proven.
template <int Rows>
void pack(std::int64_t inner, ConstIntervalRows a, std::int64_t stride, double unit, Band& band) {
  const double error =
      static_cast<double>(inner + 4) * unit;  // covers errors of the difference and of its bound, too
  band.used = 0;
  for (std::int64_t k = 0; k < inner; ++k) {
    bool zero = true;
    for (int r = 0; r < Rows; ++r) {
      const double low = a.low[r * stride + k], up = a.up[r * stride + k], difference = low - up;
      band.sum[k * Rows + r] = low + up + error * (difference < 0.0 ? -difference : difference);
      band.difference[k * Rows + r] = difference;
      zero = zero && low == 0.0 && up == 0.0;
    }
    band.skip[k] = zero;
    band.used += zero ? 0 : 1;
  }
}

/// Computes a tile, of which `real` columns exist; `weights` [inner][tile_columns] with `stride`.
template <int Rows>
void tile(std::int64_t inner, std::int64_t columns, std::int64_t real, const Band& band,
          const double* weights, std::int64_t stride, double unit, IntervalRows out) {
  Vector sum[Rows][tile_vectors] = {}, difference[Rows][tile_vectors] = {};
  for (std::int64_t k = 0; k < inner; ++k) {
    if (band.skip[k]) continue;
    TRAINYARD_UNROLL for (int v = 0; v < tile_vectors; ++v) {
      Vector weight;
      read(weight, weights + k * stride + v * lanes);
      const Vector size = weight >= 0.0 ? weight : -weight;
      TRAINYARD_UNROLL for (int r = 0; r < Rows; ++r) {
        sum[r][v] += (Vector{} + band.sum[k * Rows + r]) * size;
        difference[r][v] += (Vector{} + band.difference[k * Rows + r]) * weight;
      }
    }
  }
  const double underflow = unit > 0.0 ? static_cast<double>(block) * 0x1p-1073 : 0.0;
  for (int r = 0; r < Rows; ++r) {
    double low[tile_columns], up[tile_columns];
    TRAINYARD_UNROLL for (int v = 0; v < tile_vectors; ++v) {
      const Vector all = sum[r][v] + (sum[r][v] != 0.0 ? Vector{} + underflow : Vector{});
      write(low + v * lanes, (all + difference[r][v]) * 0.5);
      write(up + v * lanes, (all + -difference[r][v]) * 0.5);
    }
    for (std::int64_t c = 0; c < real; ++c) {
      out.low[r * columns + c] += low[c];
      out.up[r * columns + c] += up[c];
    }
  }
}

/// Calls f(Count<rows>{}), so that the compiler knows the number of rows of a band.
template <class F>
void with_rows(std::int64_t rows, const F& f) {
  switch (rows) {
    case 1: return f(Count<1>{});
    case 2: return f(Count<2>{});
    case 3: return f(Count<3>{});
    default: return f(Count<tile_rows>{});
  }
}

/// Copies some columns of a block, with zeros after the last one.
void copy(std::int64_t inner, std::int64_t real, const double* weights, std::int64_t stride, double* panel) {
  for (std::int64_t k = 0; k < inner; ++k, weights += stride, panel += tile_columns) {
    if (real < tile_columns) {
      for (std::int64_t i = 0; i < tile_columns; ++i) panel[i] = i < real ? weights[i] : 0.0;
      continue;
    }
    TRAINYARD_UNROLL for (int v = 0; v < tile_vectors; ++v) {
      Vector all;
      read(all, weights + v * lanes);
      write(panel + v * lanes, all);
    }
  }
}

/// Computes rows of some bands for a block of inner indices. Weights of a tile's columns are copied if
/// several bands read them: in place, rows of a wide matrix displace each other in the cache.
std::int64_t bands(std::int64_t rows, std::int64_t inner, std::int64_t columns, ConstIntervalRows a,
                   std::int64_t stride, const double* weights, double unit, IntervalRows out) {
  Band band[most_bands];
  double panel[block * tile_columns];
  std::int64_t done = 0;
  for (std::int64_t r = 0; r < rows; r += tile_rows) {
    Band& one = band[r / tile_rows];
    with_rows(rows - r, [&](auto count) {
      pack<count.value>(inner, {a.low + r * stride, a.up + r * stride}, stride, unit, one);
      done += one.used * count.value * columns;
    });
  }
  if (done == 0) return 0;
  for (std::int64_t c = 0; c < columns; c += tile_columns) {
    const std::int64_t real = columns - c < tile_columns ? columns - c : tile_columns;
    const bool copied = rows > tile_rows || real < tile_columns;
    if (copied) copy(inner, real, weights + c, columns, panel);
    for (std::int64_t r = 0; r < rows; r += tile_rows) {
      const Band& one = band[r / tile_rows];
      if (one.used == 0) continue;
      with_rows(rows - r, [&](auto count) {
        tile<count.value>(inner, columns, real, one, copied ? panel : weights + c,
                          copied ? tile_columns : columns, unit,
                          {out.low + r * columns + c, out.up + r * columns + c});
      });
    }
  }
  return done;
}

}  // namespace

#define TRAINYARD_JOINED(name, isa) name##_##isa
#define TRAINYARD_NAME(name, isa) TRAINYARD_JOINED(name, isa)

void TRAINYARD_NAME(interval_dot, TRAINYARD_ISA)(std::int64_t count, const double* weights,
                                                 ConstIntervalRows a, const double* sizes, IntervalSum& sum) {
  constexpr int chains = 2;  // sums that do not wait for one another
  Vector low[chains] = {}, up[chains] = {}, size[chains] = {};
  std::int64_t i = 0;
  for (; i + chains * lanes <= count; i += chains * lanes)
    TRAINYARD_UNROLL for (int chain = 0; chain < chains; ++chain) {
      const std::int64_t at = i + chain * lanes;
      Vector w, l, u, most;
      read(w, weights + at);
      read(l, a.low + at);
      read(u, a.up + at);
      read(most, sizes + at);
      const auto positive = w >= 0.0;
      const Vector width = positive ? w : -w;
      low[chain] += (positive ? l : u) * width;
      up[chain] += (positive ? u : l) * width;
      size[chain] += most * width;
    }
  for (int chain = 0; chain < chains; ++chain)
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      sum.low += low[chain][lane];
      sum.up += up[chain][lane];
      sum.size += size[chain][lane];
    }
  for (; i < count; ++i) {
    const bool positive = weights[i] >= 0.0;
    const double width = positive ? weights[i] : -weights[i];
    sum.low += (positive ? a.low[i] : a.up[i]) * width;
    sum.up += (positive ? a.up[i] : a.low[i]) * width;
    sum.size += sizes[i] * width;
  }
}

std::int64_t TRAINYARD_NAME(interval_gemm, TRAINYARD_ISA)(std::int64_t rows, std::int64_t inner,
                                                          std::int64_t columns, ConstIntervalRows a,
                                                          const double* weights, double unit,
                                                          IntervalRows out) {
  constexpr std::int64_t strip = most_bands * tile_rows;
  std::int64_t done = 0;
  for (std::int64_t r = 0; r < rows; r += strip)
    for (std::int64_t k = 0; k < inner; k += block)
      done += bands(rows - r < strip ? rows - r : strip, inner - k < block ? inner - k : block, columns,
                    {a.low + r * inner + k, a.up + r * inner + k}, inner, weights + k * columns, unit,
                    {out.low + r * columns, out.up + r * columns});
  return done;
}

}  // namespace trainyard::kernels
