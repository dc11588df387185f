// The inner loops of masked_gemm.cpp. micro.cpp is compiled once for each instruction set, and each gives one
// of these tables. Vectorised matrices are packed in strips of 16 columns, [row][16], so that a row of a
// strip is one or a few registers.
#pragma once

#include <cstdint>

namespace trainyard::kernels {

constexpr int strip_width = 16;

/// Consecutive rows of packed matrices.
struct Run {
  std::int64_t begin, length;
};

struct Runs {
  const Run* first;
  std::int64_t count;
};

/// Up to two adjacent strips, of which `lanes` columns exist.
struct Columns {
  int strips;
  const float* packed[2];
  int lanes[2];
};

/// c = sum over the rows k of the runs of a[row][k] b[k][column]; a has no gaps, b is packed.
struct ProductTile {
  /// The most elements in a row of a panel of `a`, and the stride of its rows: an odd number of cache lines.
  static constexpr std::int64_t depth = 640, stride = depth + 16;
  const float* a;
  int rows;
  Columns b;
  const float* next[2];  ///< strips needed next, prefetched into the L2 cache meanwhile
  Runs runs;
  float* c[2];  ///< first row of each strip
  std::int64_t c_stride;
  bool first, last;  ///< place in the sum for c: the first replaces c, the last finishes it as below
  // The last product computes c = keep & (activation(c + bias) scale).
  const float* bias[2];  ///< or null
  bool relu;
  float scale;
  const std::int32_t* keep[2];  ///< 16 lanes: -1, or 0 for columns that are written as zeros
};

/// c = sum over the rows r of the runs of a[r][row] b[r][column]; both are packed.
struct OuterTile {
  const float* a;
  std::int64_t a_stride;
  int rows;
  Columns b;
  Runs runs;
  float* c;  ///< its strips lie side by side
  std::int64_t c_stride;
};

struct Micro {
  int rows, strips;  ///< largest size of a tile
  int outer_rows;    ///< of an outer tile with one strip
  void (*product)(const ProductTile&);
  void (*outer)(const OuterTile&);
  /// to[column][row] of a strip of 16 = from[row][column] of `lanes` rows; the other lanes are zeros.
  void (*transpose)(float* to, const float* from, std::int64_t stride, int lanes, std::int64_t columns);
  /// to = from scale where y > 0 or there is no y, else 0; NaN in y counts as > 0.
  void (*scaled)(float* to, const float* from, const float* y, float scale, std::int64_t count);
  void (*add)(float* to, const float* from, std::int64_t count);  ///< to += from
  /// to[16] = from[lanes] and zeros, where `keep` is -1, and zeros where it is 0.
  void (*kept)(float* to, const float* from, const std::int32_t* keep, int lanes);
};

extern const Micro micro_portable;
#if defined(__x86_64__)
extern const Micro micro_avx2, micro_avx512;
#endif

}  // namespace trainyard::kernels
