// A matrix with many zeros as runtime::add_sparse reads it: rows that have as many numbers lie together, eight of them side by side, so that
// a program adds up eight at a time and seldom guesses wrong where a row ends (ELLPACK's slices, of equal rows: Monakov et al., "Automatically
// tuning sparse matrix-vector multiplication for GPU architectures", HiPEAC 2010).
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

struct SparseRows {
  std::vector<float> numbers;  ///< that are not 0
  /// How many counts there are, and for each: the count, how many rows have as many numbers, which ones, and the column of each number.
  std::vector<std::uint16_t> places;
};

inline constexpr std::int64_t most_places = 65535;  ///< rows and columns that 16 bits tell apart, and count

/// Packs a matrix of `most_places` rows and columns at most.
SparseRows sparse_rows(const at::Tensor& matrix);
/// Returns the bytes of what it would be packed to.
std::int64_t sparse_bytes(const at::Tensor& matrix);
