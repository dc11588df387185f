#include "kernels/cpu/byte_map.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "kernels/cpu/byte_map_micro.hpp"

namespace trainyard::kernels {
namespace {

constexpr int decades = 7;

/// The magnitudes of a decade divide it evenly, and lie in the middle of their parts. The last one of all is 1.
int fill_magnitudes(float* magnitude, int in_least_decade) {
  int count = 0;
  magnitude[count++] = 0.0f;
  for (int decade = 0; decade < decades; ++decade) {
    const int parts = in_least_decade << decade;
    for (int part = 0; part < parts; ++part)
      magnitude[count++] =
          static_cast<float>(std::pow(10.0, decade - decades + 1) * (0.1 + 0.9 * (part + 0.5) / parts));
  }
  return count;
}

/// Finds for each bucket which magnitude is the nearest to its smallest quotient.
void fill_buckets(ByteMap& map) {
  for (std::int32_t key = 0; key < ByteMap::buckets; ++key) {
    const auto bits = static_cast<std::uint32_t>(key + ByteMap::least_key) << (23 - ByteMap::mantissa);
    const float least = key == 0 ? 0.0f : std::bit_cast<float>(bits);
    map.first[key] =
        static_cast<std::int32_t>(std::lower_bound(map.above, map.above + map.count, least) - map.above);
  }
}

ByteMap make_map(bool has_sign) {
  ByteMap map{.has_sign = has_sign, .count = 0, .magnitude = {}, .above = {}, .first = {}, .value = {}};
  map.count = fill_magnitudes(map.magnitude, has_sign ? 1 : 2);
  // With a sign the middle of the last part gives way to 1, so that there are as many numbers below zero as above.
  if (has_sign) --map.count;
  map.magnitude[map.count++] = 1.0f;
  for (int code = 0; code + 1 < map.count; ++code)
    map.above[code] = (map.magnitude[code] + map.magnitude[code + 1]) / 2;
  map.above[map.count - 1] = std::numeric_limits<float>::infinity();
  if (!has_sign) map.above[0] = 0.0f;
  for (int byte = 0; byte < 256; ++byte) {
    const int code = has_sign ? static_cast<std::int8_t>(byte) : byte;
    const float magnitude = map.magnitude[std::min(std::abs(code), map.count - 1)];
    map.value[byte] = code < 0 ? -magnitude : magnitude;
  }
  fill_buckets(map);
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
