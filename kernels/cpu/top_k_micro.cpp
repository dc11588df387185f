// This file is compiled once per instruction set, named by TRAINYARD_ISA. It has no symbol that the linker
// could share with other units, as that code would be compiled for this set: functions of headers that it
// calls are trivial or forced inline.
#include "kernels/cpu/top_k_micro.hpp"

#include "kernels/cpu/registers.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace trainyard::kernels {
namespace {

typedef std::int32_t Keys __attribute__((vector_size(register_bytes)));
typedef std::int32_t KeysAnywhere __attribute__((vector_size(register_bytes), aligned(4), may_alias));
// Half a register of floats is converted to a whole one of doubles.
typedef double Doubles __attribute__((vector_size(register_bytes)));
typedef float Half __attribute__((vector_size(register_bytes / 2)));
typedef std::int32_t HalfKeys __attribute__((vector_size(register_bytes / 2)));
typedef std::int32_t HalfAnywhere __attribute__((vector_size(register_bytes / 2), aligned(4), may_alias));
constexpr int keys = register_bytes / 4, half = keys / 2;

constexpr std::int32_t magnitude_bits = 0x7fffffff;

#define TRAINYARD_UNROLL _Pragma("GCC unroll 16")

inline std::int32_t key_at(const float* x) {
  std::int32_t bits;
  __builtin_memcpy(&bits, x, sizeof bits);
  return bits & magnitude_bits;
}

/// Sixteen sums for any register size, so that all sets give the same bits: element i belongs to sum i % 16.
constexpr int lanes = 16;

/// The statistics of sixteen interleaved parts of the data.
struct Lanes {
  double sums[lanes] = {};
  std::int32_t smallest[lanes], largest[lanes] = {}, non_finite[lanes] = {};
  Lanes() {
    for (std::int32_t& each : smallest) each = infinite;
  }

  void add(int lane, std::int32_t key) {
    const bool finite = key < infinite;
    float magnitude;
    const std::int32_t bits = finite ? key : 0;
    __builtin_memcpy(&magnitude, &bits, sizeof magnitude);
    sums[lane] += static_cast<double>(magnitude);
    if (key < smallest[lane]) smallest[lane] = key;
    if (bits > largest[lane]) largest[lane] = bits;
    non_finite[lane] += !finite;
  }
  Summary summary() const {
    Summary all;
    for (int i = 0; i < lanes; ++i) {
      all.sum += sums[i];
      if (smallest[i] < all.smallest) all.smallest = smallest[i];
      if (largest[i] > all.largest) all.largest = largest[i];
      all.non_finite += non_finite[i];
    }
    return all;
  }
};

Summary summarize(const float* x, std::int64_t count) {
  constexpr int parts = lanes / half;
  Doubles sums[parts];
  HalfKeys smallest[parts], largest[parts], non_finite[parts];
  TRAINYARD_UNROLL
  for (int p = 0; p < parts; ++p) {
    sums[p] = Doubles{};
    smallest[p] = HalfKeys{} + infinite;
    largest[p] = non_finite[p] = HalfKeys{};
  }
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    TRAINYARD_UNROLL
    for (int p = 0; p < parts; ++p) {
      const HalfKeys key = *reinterpret_cast<const HalfAnywhere*>(x + i + p * half) & magnitude_bits;
      const HalfKeys finite = key < infinite, bits = key & finite;
      sums[p] += __builtin_convertvector(reinterpret_cast<Half>(bits), Doubles);
      smallest[p] = key < smallest[p] ? key : smallest[p];
      largest[p] = bits > largest[p] ? bits : largest[p];
      non_finite[p] += finite + 1;
    }
  }
  Lanes all;
  __builtin_memcpy(all.sums, sums, sizeof sums);
  __builtin_memcpy(all.smallest, smallest, sizeof smallest);
  __builtin_memcpy(all.largest, largest, sizeof largest);
  __builtin_memcpy(all.non_finite, non_finite, sizeof non_finite);
  for (int lane = 0; i < count; ++i, ++lane) all.add(lane, key_at(x + i));
  return all.summary();
}

template <int thresholds>
void count_above(const float* x, std::int64_t count, const std::int32_t* above, std::int64_t* counts) {
  // An addition waits for the one before it, so there are four copies of each sum if sums are few.
  constexpr int copies = thresholds < 4 ? 4 : 1;
  Keys limits[thresholds], sums[copies][thresholds] = {};
  TRAINYARD_UNROLL
  for (int t = 0; t < thresholds; ++t) limits[t] = Keys{} + above[t];
  std::int64_t i = 0;
  for (; i + keys * copies <= count; i += keys * copies) {
    TRAINYARD_UNROLL
    for (int c = 0; c < copies; ++c) {
      const Keys key = *reinterpret_cast<const KeysAnywhere*>(x + i + c * keys) & magnitude_bits;
      TRAINYARD_UNROLL
      for (int t = 0; t < thresholds; ++t) sums[c][t] -= key > limits[t];  // -1 where it is
    }
  }
  for (int t = 0; t < thresholds; ++t) {
    for (int c = 0; c < copies; ++c)
      for (int lane = 0; lane < keys; ++lane) counts[t] += sums[c][t][lane];
    for (std::int64_t rest = i; rest < count; ++rest) counts[t] += key_at(x + rest) > above[t];
  }
}

void count(const float* x, std::int64_t count, const std::int32_t* above, int thresholds,
           std::int64_t* counts) {
  switch (thresholds) {
    case 1: return count_above<1>(x, count, above, counts);
    case 3: return count_above<3>(x, count, above, counts);
    case 7: return count_above<7>(x, count, above, counts);
    default: return count_above<15>(x, count, above, counts);
  }
}

/// Compacts the rest of a block, from `i` on, or all of it where no faster way exists.
int compact_singly(const float* x, int i, int count, std::int32_t low, std::uint32_t width,
                   std::int32_t first, std::int32_t* to, int found) {
  for (; i < count; ++i) {
    to[found] = first + i;
    found += static_cast<std::uint32_t>(key_at(x + i)) - static_cast<std::uint32_t>(low) < width;
  }
  return found;
}

#if defined(__AVX512F__)
int compact(const float* x, int count, std::int32_t low, std::uint32_t width, std::int32_t first,
            std::int32_t* to) {
  const __m512i lows = _mm512_set1_epi32(low), widths = _mm512_set1_epi32(static_cast<int>(width));
  const __m512i bits = _mm512_set1_epi32(magnitude_bits);
  __m512i numbers = _mm512_add_epi32(_mm512_set1_epi32(first),
                                     _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
  int found = 0, i = 0;
  for (; i + 16 <= count; i += 16, numbers = _mm512_add_epi32(numbers, _mm512_set1_epi32(16))) {
    const __m512i key = _mm512_and_si512(_mm512_loadu_si512(x + i), bits);
    const __mmask16 within = _mm512_cmplt_epu32_mask(_mm512_sub_epi32(key, lows), widths);
    if (within == 0) continue;
    // It compresses in a register, as compressing to memory is slow on some processors.
    _mm512_storeu_si512(to + found, _mm512_maskz_compress_epi32(within, numbers));
    found += __builtin_popcount(within);
  }
  return compact_singly(x, i, count, low, width, first, to, found);
}
#elif defined(__AVX2__)
/// Holds, for each mask of eight bits, the places of its set bits, four bits each.
struct Places {
  std::uint32_t of[256] = {};
  constexpr Places() {
    for (std::uint32_t mask = 0; mask < 256; ++mask)
      for (std::uint32_t bit = 0, at = 0; bit < 8; ++bit)
        if (mask >> bit & 1) of[mask] |= bit << 4 * at++;
  }
};
constexpr Places places;

int compact(const float* x, int count, std::int32_t low, std::uint32_t width, std::int32_t first,
            std::int32_t* to) {
  // AVX2 lacks unsigned comparisons, so both sides are moved to where signed ones give the same.
  constexpr std::uint32_t lowest = 0x80000000u;
  const __m256i moved = _mm256_set1_epi32(static_cast<int>(lowest - static_cast<std::uint32_t>(low)));
  const __m256i limit = _mm256_set1_epi32(static_cast<int>(width + lowest));
  const __m256i bits = _mm256_set1_epi32(magnitude_bits);
  const __m256i digits = _mm256_set_epi32(28, 24, 20, 16, 12, 8, 4, 0);
  const auto within = [&](int i) __attribute__((always_inline)) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    return _mm256_cmpgt_epi32(limit, _mm256_add_epi32(_mm256_and_si256(bytes, bits), moved));
  };
  int found = 0, i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m256i a = within(i), b = within(i + 8), c = within(i + 16), d = within(i + 24);
    const __m256i any = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
    if (_mm256_testz_si256(any, any)) continue;
    const __m256i each[] = {a, b, c, d};
    TRAINYARD_UNROLL
    for (int part = 0; part < 4; ++part) {
      const auto mask = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(each[part])));
      const __m256i packed = _mm256_set1_epi32(static_cast<int>(places.of[mask]));
      const __m256i at = _mm256_and_si256(_mm256_srlv_epi32(packed, digits), _mm256_set1_epi32(7));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + found),
                          _mm256_add_epi32(at, _mm256_set1_epi32(first + i + 8 * part)));
      found += __builtin_popcount(mask);
    }
  }
  return compact_singly(x, i, count, low, width, first, to, found);
}
#else
int compact(const float* x, int count, std::int32_t low, std::uint32_t width, std::int32_t first,
            std::int32_t* to) {
  return compact_singly(x, 0, count, low, width, first, to, 0);
}
#endif

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(top_k_micro_, isa)
const TopKMicro TRAINYARD_NAME(TRAINYARD_ISA) = {summarize, count, compact};

}  // namespace trainyard::kernels
