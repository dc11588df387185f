// Numbers in 8 bits, by blocks: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022 (arXiv
// 2110.02861), sections 1.3 and 2. A block is divided by its largest magnitude, and each quotient becomes the
// nearest number of the dynamic map: seven decades below 1, each with twice as many numbers as the one below it.
// All instruction sets give the same bits.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

/// Signed codes are -127 to 127, zero is 0, and 1 and -1 are exact. Unsigned codes are 0 to 255, for squares: only
/// zero becomes 0, as a divisor that is rounded to zero would make a step of any length.
struct ByteMap {
  /// Buckets of a quotient by its exponent and 7 bits of its mantissa, from 2^-23 to 1.
  static constexpr int mantissa = 7, least_exponent = 127 - 23;
  static constexpr std::int32_t least_key = least_exponent << mantissa, buckets = (23 << mantissa) + 1;

  bool has_sign;
  int count;                    ///< magnitudes
  float magnitude[256];         ///< ascending, from 0 to 1
  float above[256];             ///< a quotient above it is nearer to the next magnitude; the last: infinity
  std::int32_t first[buckets];  ///< the smallest magnitude that is the nearest to a quotient of the bucket
  float value[256];             ///< by the byte of a code
};

const ByteMap& signed_map();
const ByteMap& unsigned_map();

struct ByteMapKernels {
  /// Writes codes and returns the scale: 0 where no value is as large as the smallest normal float, and NaN or
  /// infinite where a value is so.
  float (*pack)(std::uint8_t* codes, const float* values, std::int64_t count, const ByteMap& map);
  void (*unpack)(float* values, const std::uint8_t* codes, float scale, std::int64_t count,
                 const ByteMap& map);
};

/// Throws std::invalid_argument where the processor has not these instructions.
const ByteMapKernels& byte_map_kernels(Isa isa = fastest_isa());

}  // namespace trainyard::kernels
