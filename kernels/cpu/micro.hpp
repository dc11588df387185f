// The inner loops of masked_gemm.cpp. micro.cpp is compiled once for each instruction set, and each gives one
// of these tables. Matrices that are vectorised over are packed in strips of 16 columns, [row][16], so that
// a row of a strip is one or a few registers.
#pragma once

#include <cstdint>

namespace trainyard::kernels {

constexpr int strip_width = 16;

/// Rows of packed matrices that follow one another.
struct Run {
  std::int64_t begin, length;
};

struct Runs {
  const Run* first;
  std::int64_t count;
};

/// Up to two strips side by side, of `lanes` columns that exist.
struct Columns {
  int strips;
  const float* packed[2];
  int lanes[2];
};

/// c = sum over the rows k of the runs of a[row][k] b[k][column]; a has no gaps, b is packed.
struct ProductTile {
  /// The most that a panel of `a` has in a row, and how far its rows are apart: an odd number of cache lines.
  static constexpr std::int64_t depth = 640, stride = depth + 16;
  const float* a;
  int rows;
  Columns b;
  const float* next[2];  ///< strips that are wanted next, fetched into the second cache meanwhile
  Runs runs;
  float* c[2];  ///< first row of each strip
  std::int64_t c_stride;
  bool first, last;  ///< of the products that make up c: what is there is not added; is finished below
  // When it is the last: c = keep & (activation(c + bias) scale).
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
  int rows, strips;  ///< the most of a tile
  int outer_rows;    ///< of an outer tile of one strip
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
