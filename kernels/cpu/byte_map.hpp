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
///
/// The numbers of a decade are the middles of its parts, which are even, so that codes are found by arithmetic. Beside the
/// seven decades an eighth has 1 alone.
struct ByteMap {
  static constexpr int decades = 8;

  bool has_sign;
  int count;             ///< magnitudes
  float magnitude[256];  ///< ascending, from 0 to 1
  float value[256];      ///< by the byte of a code

  // By decade, in as many lanes as a register has.
  float above[16];  ///< a quotient above it belongs to this decade or a higher one; of the least: is not zero
  float lower[16];  ///< where the first part begins
  float per_part[16];               ///< 1 / the width of a part
  float least[16];                  ///< the number of the first part
  float width[16];                  ///< of all parts; so few bits that a part's share of it is exact
  std::int32_t code[16], last[16];  ///< the code of the first part, and the place of the last part
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
