// This file is compiled once per instruction set, named by TRAINYARD_ISA. It includes no code that the linker
// could share with other units, as that code would be compiled for this set.
#include "kernels/cpu/byte_map_micro.hpp"

namespace trainyard::kernels {
namespace {

constexpr std::uint32_t sign_bit = 0x80000000U, smallest_normal = 0x00800000U;

/// Returns the largest magnitude; as bits, a NaN is larger than all numbers.
float largest_magnitude(const float* values, std::int64_t count) {
  std::uint32_t most = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, values[i]) & ~sign_bit;
    most = bits > most ? bits : most;
  }
  return __builtin_bit_cast(float, most < smallest_normal ? 0 : most);
}

float pack(std::uint8_t* __restrict codes, const float* __restrict values, std::int64_t count,
           const ByteMap& map) {
  const float scale = largest_magnitude(values, count);
  if (scale == 0.0f) {
    __builtin_memset(codes, 0, static_cast<std::size_t>(count));
    return scale;
  }
  const std::int32_t* __restrict const first = map.first;
  const float* __restrict const above = map.above;
  const std::int32_t signs = map.has_sign ? -1 : 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float quotient = values[i] / scale;
    const auto bits = __builtin_bit_cast(std::int32_t, quotient);
    const auto size = static_cast<std::int32_t>(bits & ~sign_bit);
    std::int32_t key = (size >> (23 - ByteMap::mantissa)) - ByteMap::least_key;
    key = key < 0 ? 0 : key;
    key = key > ByteMap::buckets - 1 ? ByteMap::buckets - 1 : key;  // of a NaN
    std::int32_t code = first[key];
    code += __builtin_bit_cast(float, size) > above[code] ? 1 : 0;
    const std::int32_t negative = (bits >> 31) & signs;
    codes[i] = static_cast<std::uint8_t>((code ^ negative) - negative);
  }
  return scale;
}

void unpack(float* __restrict values, const std::uint8_t* __restrict codes, float scale, std::int64_t count,
            const ByteMap& map) {
  const float* __restrict const table = map.value;
  for (std::int64_t i = 0; i < count; ++i) values[i] = table[static_cast<std::int32_t>(codes[i])] * scale;
}

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(byte_map_, isa)
const ByteMapKernels TRAINYARD_NAME(TRAINYARD_ISA) = {pack, unpack};

}  // namespace trainyard::kernels
