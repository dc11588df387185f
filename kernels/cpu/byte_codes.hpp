// Rounds floats to integers of 8 bits and back, a block of them at a time: value = (code - zero) * scale. All
// instruction sets give the same bits.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

struct ByteRange {
  float least = 0.0f, most = 0.0f;  ///< of the values and 0; of no use where not all are finite
  bool finite = true;
};

struct ByteCodeKernels {
  ByteRange (*range)(const float* x, std::int64_t count);

  /// Write the code of each value: round to even of x * inverse, plus `zero`, clamped to 0 .. 255, or to -127 .. 127.
  /// With `keeps_positive` a value above 0 gets a code above `zero`, which then is at most 254; no other value does.
  void (*unsigned_codes)(std::uint8_t* codes, const float* x, std::int64_t count, float inverse,
                         std::int32_t zero, bool keeps_positive);
  void (*signed_codes)(std::int8_t* codes, const float* x, std::int64_t count, float inverse,
                       bool keeps_positive);

  /// Write (code - zero) * scale.
  void (*unsigned_values)(float* x, const std::uint8_t* codes, std::int64_t count, float scale,
                          std::int32_t zero);
  void (*signed_values)(float* x, const std::int8_t* codes, std::int64_t count, float scale);
};

/// Throws std::invalid_argument where the processor has not these instructions.
const ByteCodeKernels& byte_code_kernels(Isa isa = fastest_isa());

}  // namespace trainyard::kernels
