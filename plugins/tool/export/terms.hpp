// A matrix as a sum of terms of few numbers, as transforms put them into a graph: Kronecker products, products of low rank,
// matrices with zeros. A program multiplies by each, and never has the matrix.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/graph/graph.hpp>

#include "constants.hpp"

/// A term of [rows, columns], below `row` rows of zeros.
struct Term {
  enum class Form { dense, sparse, low_rank, kronecker };
  Form form = Form::dense;
  at::Tensor left;  ///< dense, sparse: the matrix
  at::Tensor right =
      {};  ///< low_rank: left [rows, rank] times right [rank, columns]; kronecker: left (x) right
  std::int64_t row = 0;

  std::int64_t rows() const;
  /// Returns the numbers that it takes: of a sparse one those that are not 0.
  std::int64_t numbers() const;
  /// Returns the bytes that they take, in single precision, and of a sparse one with their places (sparse_rows.hpp).
  std::int64_t bytes() const;
};

/// Returns the terms of a matrix that the graph computes of constants, or holds. It is one dense term where it is not made
/// of others, and where these would take more than half of its bytes. A matrix may have dimensions of 1 in front.
std::vector<Term> terms_of(const trainyard::Graph& graph, const Constants& constants,
                           trainyard::ValueId matrix);
