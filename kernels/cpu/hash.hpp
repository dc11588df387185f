// Computes families of locality-sensitive hash functions of a vector, many functions at once. All instruction
// sets give the same bits: one lane adds up a sum in the order of the coordinates, and its products, by 1, 0
// and -1, are exact.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

/// The number of functions, here and in the tables that they read, is a multiple of this.
constexpr std::int64_t hash_lanes = 16;

struct HashKernels {
  /// sums[f] = sum over i of x[i] signs[i][f]
  void (*project)(float* sums, const float* x, std::int64_t width, const float* signs,
                  std::int64_t functions);
  /// places[f] = the first j < bin with the largest x[members[j][f]]. NaN does not count, and zeros only
  /// where they shall; where nothing counts it is `bin`.
  void (*largest)(std::int32_t* places, const float* x, const std::int32_t* members, std::int64_t bin,
                  std::int64_t functions, bool zeros_count);
  /// least[f] = min over the coordinates c of priorities[c][f]; of none the largest number.
  void (*least)(std::uint32_t* least, const std::int32_t* coordinates, std::int64_t count,
                const std::uint32_t* priorities, std::int64_t functions);
};

/// Throws std::invalid_argument where the processor has not these instructions.
const HashKernels& hash_kernels(Isa isa = fastest_isa());

}  // namespace trainyard::kernels
