// The nearest rows of a table, exactly: a matrix product in single precision finds candidates, and the distances
// of those that its rounding error cannot rule out are computed again in double precision.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "detector.hpp"

namespace screen {

/// Of each row its `count` nearest, ascending by distance and, where equal, by place.
struct Neighbours {
  std::size_t count = 0;
  std::vector<double> distances;
  std::vector<std::int32_t> places;

  const double* distances_of(std::size_t row) const { return distances.data() + row * count; }
  const std::int32_t* places_of(std::size_t row) const { return places.data() + row * count; }
};

class NeighbourIndex {
 public:
  NeighbourIndex() = default;
  explicit NeighbourIndex(Matrix reference);

  const Matrix& reference() const { return reference_; }

  /// Returns the nearest rows of the reference. `count` is at most the rows that there are.
  Neighbours nearest(const Matrix& rows, std::size_t count, const Fitting& fitting) const;
  /// Returns those of the reference's own rows, none of which is its own neighbour.
  Neighbours nearest_others(std::size_t count, const Fitting& fitting) const;

  void keep(Archive& archive);

 private:
  class Candidates;
  void prepare();
  double scale_row(std::span<const double> row, float* out) const;
  void collect(const at::Tensor& queries, at::Tensor& products, std::span<Candidates> candidates,
               std::size_t first_left_out) const;
  Neighbours find(const Matrix& rows, std::size_t count, bool others, const Fitting& fitting) const;

  Matrix reference_;
  // Made of it: rows less their mean, over the largest number; and their squared lengths, less and plus the
  // error that products of them may have.
  std::vector<double> mean_;
  double scale_ = 1.0;
  at::Tensor scaled_;
  std::vector<float> low_, high_;
};

}  // namespace screen
