// Rows of numbers, as detectors read them.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace screen {

/// A table of doubles in row-major order.
struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(std::size_t row_count, std::size_t column_count)
      : rows(row_count), columns(column_count), values(row_count * column_count) {}

  std::span<const double> row(std::size_t i) const { return {values.data() + i * columns, columns}; }
  std::span<double> row(std::size_t i) { return {values.data() + i * columns, columns}; }
  double at(std::size_t i, std::size_t j) const { return values[i * columns + j]; }

  /// Returns a copy of one column.
  std::vector<double> column(std::size_t j) const {
    std::vector<double> result(rows);
    for (std::size_t i = 0; i < rows; ++i) result[i] = at(i, j);
    return result;
  }
  /// Returns a copy of the rows from `first` to `last - 1`.
  Matrix slice(std::size_t first, std::size_t last) const {
    Matrix part(last - first, columns);
    part.values.assign(values.begin() + static_cast<std::ptrdiff_t>(first * columns),
                       values.begin() + static_cast<std::ptrdiff_t>(last * columns));
    return part;
  }
};

/// Returns the squared distance of two rows, always summed in the same order.
inline double squared_distance(std::span<const double> a, std::span<const double> b) {
  double sums[4] = {};
  std::size_t j = 0;
  for (; j + 4 <= a.size(); j += 4)
    for (std::size_t lane = 0; lane < 4; ++lane) {
      const double difference = a[j + lane] - b[j + lane];
      sums[lane] += difference * difference;
    }
  for (; j < a.size(); ++j) {
    const double difference = a[j] - b[j];
    sums[0] += difference * difference;
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

}  // namespace screen
