// Vectors of a register and functions of them, for units that are compiled once for each instruction set: all is
// forced inline, so that no unit takes a copy that was compiled for another set. Polynomials of Moshier, Cephes.
#pragma once

#include <cstdint>

#include "kernels/cpu/registers.hpp"

#define TRAINYARD_INLINE inline __attribute__((always_inline))

namespace trainyard::kernels {
namespace {

typedef float Vector __attribute__((vector_size(register_bytes)));
typedef std::int32_t Words __attribute__((vector_size(register_bytes)));
typedef std::uint32_t Bits __attribute__((vector_size(register_bytes)));
typedef float Anywhere __attribute__((vector_size(register_bytes), aligned(4), may_alias));
inline constexpr std::int64_t lanes = register_bytes / 4;
inline constexpr float infinity = __builtin_inff();
inline constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;  // their sum is ln 2

TRAINYARD_INLINE Vector load(const float* from) {
  return *reinterpret_cast<const Anywhere*>(from);  // NOLINT(clang-analyzer-core.NullDereference)
}
TRAINYARD_INLINE void store(float* to, Vector value) {
  *reinterpret_cast<Anywhere*>(to) = value;  // NOLINT(clang-analyzer-core.NullDereference)
}

// Those of bfloat16.
typedef std::uint16_t Halves __attribute__((vector_size(register_bytes / 2)));
typedef std::uint16_t HalvesAnywhere __attribute__((vector_size(register_bytes / 2), aligned(2), may_alias));

TRAINYARD_INLINE Vector load(const std::uint16_t* from) {
  const Halves halves = *reinterpret_cast<const HalvesAnywhere*>(from);
  return reinterpret_cast<Vector>(__builtin_convertvector(halves, Bits) << 16);
}
/// Rounded to the nearest, ties to even; NaN stays.
TRAINYARD_INLINE void store(std::uint16_t* to, Vector value) {
  const Bits bits = reinterpret_cast<Bits>(value), rounded = bits + 0x7fffU + (bits >> 16 & 1U);
  const Bits found = (value == value ? rounded : bits | 0x400000U) >> 16;
  *reinterpret_cast<HalvesAnywhere*>(to) = __builtin_convertvector(found, Halves);
}

struct Add {
  static TRAINYARD_INLINE Vector of(Vector a, Vector b) { return a + b; }
};
struct Max {
  static TRAINYARD_INLINE Vector of(Vector a, Vector b) { return a > b ? a : b; }
};

template <class Operation>
TRAINYARD_INLINE float folded(Vector v) {
#if defined(__AVX512F__)
  v = Operation::of(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  v = Operation::of(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  v = Operation::of(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  v = Operation::of(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
#elif defined(__AVX2__)
  v = Operation::of(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
  v = Operation::of(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
  v = Operation::of(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6));
#else
  v = Operation::of(v, __builtin_shufflevector(v, v, 2, 3, 0, 1));
  v = Operation::of(v, __builtin_shufflevector(v, v, 1, 0, 3, 2));
#endif
  return v[0];
}

/// x = n ln 2 + r, |r| <= ln(2) / 2: exp(r) - 1, and n, as an integer in the last bits of `shifted`.
struct Reduced {
  Vector less_one;
  Vector shifted;
};
TRAINYARD_INLINE Reduced reduced(Vector x) {
  constexpr float log2_e = 1.44269504f;
  constexpr float integers =
      12582912.0f;  // 1.5 x 2^23: a small number added is rounded to an integer, in the last bits
  const Vector shifted = x * log2_e + integers;
  const Vector n = shifted - integers;
  const Vector r = (x - n * ln2_high) - n * ln2_low;
  Vector p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return {p * (r * r) + r, shifted};
}
/// Returns 2^(n + more).
TRAINYARD_INLINE Vector power_of_two(Vector shifted, std::int32_t more) {
  const auto offset = static_cast<std::uint32_t>(127 + more) << 23;
  return reinterpret_cast<Vector>((reinterpret_cast<Bits>(shifted) << 23) + offset);
}

/// Returns exp(x) for x <= 0; 0 below 2^-126.
TRAINYARD_INLINE Vector exponential_below(Vector x) {
  constexpr float lowest = -87.33654f;  // 2^-126
  const Reduced e = reduced(x);
  return x < lowest ? Vector{} : (e.less_one + 1.0f) * power_of_two(e.shifted, 0);
}

/// Returns log(1 + f) - f for f from sqrt(1/2) - 1 to sqrt(2) - 1.
TRAINYARD_INLINE Vector log_tail(Vector f) {
  const Vector z = f * f;
  Vector p = f * 7.0376836292e-2f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  return p * f * z - 0.5f * z;
}

/// Returns log(1 + x) for x from 0 to 1: as log(1 + f), or ln 2 + log(1 + f).
TRAINYARD_INLINE Vector log_one_plus(Vector x) {
  constexpr float root = 0.41421356f;  // sqrt(2) - 1
  const Words over = x > root;
  const Vector f = over ? 0.5f * (x - 1.0f) : x;
  const Vector tail = log_tail(f);
  return over ? (f + (tail + ln2_low)) + ln2_high : f + tail;
}

/// Returns exp(x) - 1, which is infinite above 88.72 and -1 below -86.6.
TRAINYARD_INLINE Vector exponential_less_one(Vector x) {
  constexpr float lowest = -86.64339f, highest = 88.72283f;  // 2^-125, and the largest float
  const Reduced e = reduced(x);
  // Computes half of the result with 2^(n - 1), as 2^128 is no float, and doubles it.
  const Vector half = power_of_two(e.shifted, -1);
  const Vector found = (e.less_one * half + (half - 0.5f)) * 2.0f;
  return x < lowest ? Vector{} - 1.0f : x > highest ? Vector{} + infinity : found;
}

/// Returns exp(x); 0 below 2^-125.
TRAINYARD_INLINE Vector exponential(Vector x) {
  constexpr float lowest = -86.64339f, highest = 88.72283f;
  const Reduced e = reduced(x);
  const Vector found = (e.less_one + 1.0f) * 2.0f * power_of_two(e.shifted, -1);
  return x < lowest ? Vector{} : x > highest ? Vector{} + infinity : found;
}

TRAINYARD_INLINE Vector logarithm(Vector x) {
  constexpr float smallest = 1.17549435e-38f, two_to_25 = 33554432.0f;
  const Words is_small = x < smallest;
  const Vector normal = is_small ? x * two_to_25 : x;
  // x = 2^n m, m from sqrt(1/2) to sqrt(2).
  constexpr std::uint32_t root_half = 0x3f3504f3;
  const Bits bits = reinterpret_cast<Bits>(normal) - root_half;
  const Words power = reinterpret_cast<Words>(bits) >> 23;
  const Vector m = reinterpret_cast<Vector>((bits & 0x7fffff) + root_half);
  const Vector n = __builtin_convertvector(power, Vector) - (is_small ? Vector{} + 25.0f : Vector{});
  const Vector f = m - 1.0f;
  const Vector found = (f + (log_tail(f) + n * ln2_low)) + n * ln2_high;
  const Vector finite = x > 0.0f ? found : x == 0.0f ? Vector{} - infinity : Vector{} + __builtin_nanf("");
  return x == infinity || x != x ? x : finite;
}

TRAINYARD_INLINE Vector absolute(Vector x) {
  return reinterpret_cast<Vector>(reinterpret_cast<Words>(x) & 0x7fffffff);
}

TRAINYARD_INLINE Vector sigmoid(Vector x) {
  return 1.0f / (1.0f + exponential(-x));
}

TRAINYARD_INLINE Vector tanh(Vector x) {
  const Vector z = x * x, size = absolute(x);
  Vector p = z * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const Vector far = 1.0f - 2.0f / (exponential(2.0f * size) + 1.0f);
  return size < 0.625f ? p * z * x + x : x < 0.0f ? -far : far;
}

TRAINYARD_INLINE Vector softplus(Vector x) {
  return (x > 0.0f ? x : Vector{}) + log_one_plus(exponential(-absolute(x)));
}

}  // namespace
}  // namespace trainyard::kernels
