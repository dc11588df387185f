#include "kernels/cpu/byte_map.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/cpu/byte_map_micro.hpp"

namespace trainyard::kernels {
namespace {

/// Rounds to 16 bits: times a fraction of 8 bits it is exact, with a fused addition or without.
float in_few_bits(double number) {
  int exponent = 0;
  const double fraction = std::frexp(number, &exponent);
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(fraction, 16)), exponent - 16));
}

void fill_decade(ByteMap& map, int decade, int parts, int used) {
  const double unit = std::pow(10.0, decade - 6);
  const float width = in_few_bits(0.9 * unit), part = width / static_cast<float>(parts);
  map.lower[decade] = static_cast<float>(0.1 * unit);
  map.least[decade] = map.lower[decade] + part / 2;
  map.width[decade] = width;
  map.per_part[decade] = 1.0f / part;
  map.code[decade] = map.count;
  map.last[decade] = used - 1;
  for (int place = 0; place < used; ++place)
    map.magnitude[map.count++] = map.least[decade] + part * static_cast<float>(place);
}

ByteMap make_map(bool has_sign) {
  ByteMap map{};
  map.has_sign = has_sign;
  map.count = 1;
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = (has_sign ? 1 : 2) << decade;
    // With a sign the last number of all gives way to 1, so that there are as many below zero as above it.
    fill_decade(map, decade, parts, parts - (has_sign && decade == 6 ? 1 : 0));
  }
  map.lower[7] = map.least[7] = 1.0f;
  map.code[7] = map.count;
  map.magnitude[map.count++] = 1.0f;
  for (int decade = 0; decade < ByteMap::decades; ++decade) {
    const std::int32_t first = map.code[decade];
    map.above[decade] = (map.magnitude[first - 1] + map.magnitude[first]) / 2;
  }
  if (!has_sign) map.above[0] = 0.0f;
  for (int byte = 0; byte < 256; ++byte) {
    const int code = has_sign ? static_cast<std::int8_t>(byte) : byte;
    const float magnitude = map.magnitude[std::min(std::abs(code), map.count - 1)];
    map.value[byte] = code < 0 ? -magnitude : magnitude;
  }
  return map;
}

}  // namespace

const ByteMap& signed_map() {
  static const ByteMap map = make_map(true);
  return map;
}

const ByteMap& unsigned_map() {
  static const ByteMap map = make_map(false);
  return map;
}

const ByteMapKernels& byte_map_kernels(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("byte_map: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return byte_map_avx512;
  if (isa == Isa::avx2) return byte_map_avx2;
#endif
  return byte_map_portable;
}

}  // namespace trainyard::kernels
