// Random projections to fewer columns, which keep distances about as they are (Johnson & Lindenstrauss, 1984).
#pragma once

#include <cstdint>

#include <trainyard/random.hpp>

#include "matrix.hpp"

namespace screen {

enum class ProjectionMethod : std::uint8_t {
  basic,      ///< independent normal numbers
  discrete,   ///< independent signs
  circulant,  ///< a circulant matrix of one row of normal numbers
  toeplitz,   ///< normal numbers, the same along each diagonal
  none,
};

/// Returns a matrix of `from` rows and `to` columns by which rows are multiplied. On average a squared length stays as
/// it is.
Matrix projection_matrix(ProjectionMethod method, std::size_t from, std::size_t to,
                         const trainyard::RandomStream& random);

/// Returns the product. Each row of it depends on that row alone, to the bit.
Matrix project(const Matrix& rows, const Matrix& projection);

}  // namespace screen
