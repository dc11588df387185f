// Matrices of few numbers: a Kronecker product, a product of low rank, or some free rows above rows of rank one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <trainyard/manifest.hpp>

namespace doped {

enum class Form : std::uint8_t { kp, lmf, hmd };

/// The sizes of a structured matrix, [rows, columns].
struct Structure {
  Form form = Form::kp;
  std::int64_t rows = 0, columns = 0;
  /// kp: B [left_rows, left_columns] (x) C [right_rows, right_columns]; their products are rows and columns.
  std::int64_t left_rows = 0, left_columns = 0, right_rows = 0, right_columns = 0;
  std::int64_t rank = 0;  ///< lmf: U [rows, rank] V [rank, columns]
  /// hmd: `blocks` equal blocks of rows (the gates of an LSTM), each with `free_rows` rows of its own above rows of rank one.
  std::int64_t blocks = 1, free_rows = 0;

  std::int64_t elements() const { return rows * columns; }
  std::int64_t parameters() const;
  /// Returns the largest rank that it can have.
  std::int64_t most_rank() const;
  /// Returns the multiply-adds of its product with a vector, without the matrix itself.
  std::int64_t products() const;
  /// Says what it is: "(16 x 16) (x) (32 x 16)".
  std::string text() const;
};

/// A matrix to be structured.
struct Wanted {
  Form form = Form::kp;
  std::int64_t rows = 0, columns = 0;
  std::int64_t blocks = 1;  ///< for hmd; divides the rows
};

/// Returns the structure of `budget` numbers at most: of lmf and hmd the largest, of kp that of the highest rank, of
/// several such the one with the most numbers, then the fewest multiply-adds. Where none is as small, the smallest.
Structure largest(const Wanted& wanted, std::int64_t budget);

}  // namespace doped

template <>
struct trainyard::Words<doped::Form> {
  static constexpr std::string_view words[] = {"kp", "lmf", "hmd"};
};
