// Combines the neighbours of nodes for layers of graph networks: sums, maxima and products over the rows of a
// sparse matrix in CSR form, whose entries name rows of a dense one. Dense matrices are row-major without
// gaps; no array of size [entries, width] is made.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

/// Row r has the entries offsets[r] .. offsets[r + 1); entry e names row column[e] of what is read.
struct Segments {
  std::int64_t rows = 0;
  const std::int64_t* offsets = nullptr;  ///< [rows + 1], from 0 and never falling
  const std::int64_t* column = nullptr;   ///< [entries]; null: entry e names row e

  std::int64_t entries() const { return offsets[rows]; }
  std::int64_t named(std::int64_t entry) const { return column == nullptr ? entry : column[entry]; }
};

/// y[r] = the sum over its entries of weight x x[named row]; 0 where it has none.
template <class T>
struct SegmentSum {
  Segments segments;
  std::int64_t heads = 1, width = 0;  ///< a row of x and y has `heads` parts of `width` elements
  const T* x = nullptr;
  const T* weight = nullptr;                 ///< [entries, heads], one number a part; null: 1
  const std::int64_t* weight_row = nullptr;  ///< the row of `weight` that an entry has; null: entry e row e
  T* y = nullptr;                            ///< [rows, heads, width]
};

/// y[r] = the largest of x[named row], element by element; 0 where the row has no entries. NaN is the
/// largest.
template <class T>
struct SegmentMax {
  Segments segments;
  std::int64_t width = 0;
  const T* x = nullptr;
  T* y = nullptr;  ///< [rows, width]
  std::int32_t* entry =
      nullptr;  ///< [rows, width]: whose it is, the first of several; -1 where there is none
};

/// product[e] = g[row of e] . x[named row], for each part: the gradients of the weights of a sum.
template <class T>
struct SegmentDots {
  Segments segments;
  std::int64_t heads = 1, width = 0;
  const T* g = nullptr;  ///< [rows, heads, width]
  const T* x = nullptr;
  T* product = nullptr;  ///< [entries, heads]
};

template <class T>
void sum(Isa isa, const SegmentSum<T>& what, std::int64_t begin, std::int64_t end);
template <class T>
void maximum(Isa isa, const SegmentMax<T>& what, std::int64_t begin, std::int64_t end);
template <class T>
void dots(Isa isa, const SegmentDots<T>& what, std::int64_t begin, std::int64_t end);

/// Adds the gradient of a maximum, dy [rows, width], to that of the elements it came from, dx, in columns
/// [begin, end) of both, by which threads divide the work here.
template <class T>
void add_maximum_gradient(const SegmentMax<T>& of, const T* dy, T* dx, std::int64_t begin, std::int64_t end);

// Softmax over the entries of a row, for each of a few heads; [entries, heads]. Between the two steps the
// caller replaces every element by its exponential.
/// y = x less the largest of the row.
template <class T>
void subtract_maximum(const Segments& segments, std::int64_t heads, const T* x, T* y, std::int64_t begin,
                      std::int64_t end);
/// Divides y by the sum of the row, in place.
template <class T>
void divide_by_sum(const Segments& segments, std::int64_t heads, T* y, std::int64_t begin, std::int64_t end);
/// dx = y (dy - sum of y dy over the row), y being the softmax.
template <class T>
void softmax_gradient(const Segments& segments, std::int64_t heads, const T* y, const T* dy, T* dx,
                      std::int64_t begin, std::int64_t end);

/// y[e] = a[named row] + b[row of e]; [entries, heads].
template <class T>
void add_ends(const Segments& segments, std::int64_t heads, const T* a, const T* b, T* y, std::int64_t begin,
              std::int64_t end);

/// Writes the same matrix by columns, sorted by counting: column c has the entries offsets[c] .. offsets[c +
/// 1), which are those of `entry`, ascending, in the rows of `row`. The sizes are [columns + 1], and
/// [entries] twice.
void transpose(const Segments& segments, std::int64_t columns, std::int64_t* offsets, std::int64_t* row,
               std::int64_t* entry);

/// Returns the first row of part `part` of `parts` with about equal work; an entry and a row count one each.
std::int64_t balanced_row(const Segments& segments, std::int64_t parts, std::int64_t part);

}  // namespace trainyard::kernels
