// For loops that are compiled once for each instruction set, over floats and over bfloat16, of which they compute in floats.
#pragma once

#include <bit>

#include "kernels/cpu/for_each_isa.hpp"

#include "loops.hpp"

#define PART_OF_EACH inline __attribute__((always_inline))

namespace compiled {

PART_OF_EACH float wide(float x) {
  return x;
}
PART_OF_EACH float wide(Half x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
}
PART_OF_EACH void put(float& to, float x) {
  to = x;
}
PART_OF_EACH void put(Half& to, float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16, quiet = bits >> 16 | 0x40U;
  to = static_cast<Half>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);  // NaN stays
}

template <class Of>
PART_OF_EACH float sum_of(std::int64_t count, const Of& of) {
  constexpr std::int64_t lanes = 32;
  float sums[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::int64_t l = 0; l < lanes; ++l) sums[l] += of(i + l);
  for (std::int64_t l = 0; i + l < count; ++l) sums[l] += of(i + l);
  float sum = 0.0f;
  for (const float each : sums) sum += each;
  return sum;
}

}  // namespace compiled
