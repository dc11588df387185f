// Compares two tensors of checkpoints element by element. Torch-free.
#pragma once

#include <cstdint>
#include <vector>

#include "core/rundir/checked_file.hpp"

namespace trainyard::checkpoint {

/// Elements with the same bits are equal, NaN among them; any others differ, if by 0 (-0 and +0, two NaNs).
/// The relative difference of x and y is |x - y| / max(|x|, |y|), from 0 to 2. Both are infinite where one is
/// NaN or infinite and the other is not the same.
struct ValueDifference {
  std::uint64_t elements = 0;
  std::uint64_t differ = 0;
  double largest_absolute = 0.0, largest_relative = 0.0;
  std::vector<std::int64_t> first;  ///< index of the first that differs; empty for none and for scalars
};

/// Returns why elements do not correspond, as the end of a sentence ("their shapes differ"); else null.
const char* why_not_comparable(const TensorEntry& a, const TensorEntry& b);

/// Compares two comparable tensors, each in its file, and checks their digests. Throws DataError.
ValueDifference compare_values(const CheckedFile& file_of_a, const TensorEntry& a,
                               const CheckedFile& file_of_b, const TensorEntry& b);

}  // namespace trainyard::checkpoint
