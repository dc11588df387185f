// This file is compiled once per instruction set, named by TRAINYARD_ISA. It includes no code that the linker
// could share with other units, as that code would be compiled for this set.
#include "kernels/cpu/byte_map_micro.hpp"
#include "kernels/cpu/vector_math.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace trainyard::kernels {
namespace {

constexpr std::int32_t no_sign = 0x7fffffff;
constexpr std::uint32_t smallest_normal = 0x00800000U;

#if defined(__AVX512F__)
TRAINYARD_INLINE Words widened(const std::uint8_t* codes, bool has_sign) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  return reinterpret_cast<Words>(has_sign ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
}
TRAINYARD_INLINE void write_bytes(std::uint8_t* codes, Words words) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(words)));
}
#elif defined(__AVX2__)
TRAINYARD_INLINE Words widened(const std::uint8_t* codes, bool has_sign) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
  return reinterpret_cast<Words>(has_sign ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
}
TRAINYARD_INLINE void write_bytes(std::uint8_t* codes, Words words) {
  const __m256i low = _mm256_and_si256(reinterpret_cast<__m256i>(words), _mm256_set1_epi32(255));
  const __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(codes), _mm_packus_epi16(halves, halves));
}
#else
TRAINYARD_INLINE Words widened(const std::uint8_t* codes, bool has_sign) {
  Words words{};
  for (int i = 0; i < lanes; ++i) words[i] = has_sign ? static_cast<std::int8_t>(codes[i]) : codes[i];
  return words;
}
TRAINYARD_INLINE void write_bytes(std::uint8_t* codes, Words words) {
  for (int i = 0; i < lanes; ++i) codes[i] = static_cast<std::uint8_t>(words[i]);
}
#endif

/// Returns the entry for each lane; one that is beyond the eighth is any.
TRAINYARD_INLINE Vector look(const float* table, Words index) {
#if defined(__AVX2__)
  return __builtin_shuffle(load(table), index);
#else
  Vector found{};
  for (int i = 0; i < lanes; ++i) found[i] = table[index[i] & 7];
  return found;
#endif
}
TRAINYARD_INLINE Words look(const std::int32_t* table, Words index) {
  return reinterpret_cast<Words>(look(reinterpret_cast<const float*>(table), index));
}

/// Returns the largest magnitude; as bits, a NaN is larger than all numbers.
float largest_magnitude(const float* values, std::int64_t count) {
  std::uint32_t most = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, values[i]) & no_sign;
    most = bits > most ? bits : most;
  }
  return __builtin_bit_cast(float, most < smallest_normal ? 0 : most);
}

/// Nothing here is rounded otherwise where a product and a sum are one operation.
TRAINYARD_INLINE Words pack_lanes(Vector values, float scale, const ByteMap& map) {
  const Words bits = reinterpret_cast<Words>(values / scale);
  const Vector size = reinterpret_cast<Vector>(bits & no_sign);
  Words decade = {};
  for (int k = 1; k < ByteMap::decades; ++k) decade -= size > map.above[k];
  const Vector place = (size - look(map.lower, decade)) * look(map.per_part, decade);
  const Words found = __builtin_convertvector(place, Words), last = look(map.last, decade);
  const Words code = (found > last ? last : found) + look(map.code, decade);
  const Words negative = map.has_sign ? bits >> 31 : Words{};
  return (((size > map.above[0]) & code) ^ negative) - negative;
}

TRAINYARD_INLINE Vector unpack_lanes(Words code, float scale, const ByteMap& map) {
  const Words magnitude = code < 0 ? -code : code;
  // The highest bit is the decade, and those below it are the place.
  const Words number = reinterpret_cast<Words>(__builtin_convertvector(magnitude + !map.has_sign, Vector));
  const Words decade = (number >> 23) - (map.has_sign ? 127 : 128);
  const Vector share = reinterpret_cast<Vector>((number & 0x007fffff) | 0x3f800000) - 1.0f;
  Vector value = share * look(map.width, decade) + look(map.least, decade);
  value = magnitude >= map.count - 1 ? Vector{} + 1.0f : value;
  value = magnitude == 0 ? Vector{} : value;
  return (code < 0 ? -value : value) * scale;
}

float pack(std::uint8_t* codes, const float* values, std::int64_t count, const ByteMap& map) {
  const float scale = largest_magnitude(values, count);
  if (scale == 0.0f) {
    __builtin_memset(codes, 0, static_cast<std::size_t>(count));
    return scale;
  }
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) write_bytes(codes + i, pack_lanes(load(values + i), scale, map));
  if (i == count) return scale;
  const auto left = static_cast<std::size_t>(count - i);
  float rest[lanes] = {};
  std::uint8_t packed[lanes];
  __builtin_memcpy(rest, values + i, left * sizeof(float));
  write_bytes(packed, pack_lanes(load(rest), scale, map));
  __builtin_memcpy(codes + i, packed, left);
  return scale;
}

void unpack(float* values, const std::uint8_t* codes, float scale, std::int64_t count, const ByteMap& map) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    store(values + i, unpack_lanes(widened(codes + i, map.has_sign), scale, map));
  if (i == count) return;
  const auto left = static_cast<std::size_t>(count - i);
  std::uint8_t packed[lanes] = {};
  float rest[lanes];
  __builtin_memcpy(packed, codes + i, left);
  store(rest, unpack_lanes(widened(packed, map.has_sign), scale, map));
  __builtin_memcpy(values + i, rest, left * sizeof(float));
}

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(byte_map_, isa)
const ByteMapKernels TRAINYARD_NAME(TRAINYARD_ISA) = {pack, unpack};

}  // namespace trainyard::kernels
