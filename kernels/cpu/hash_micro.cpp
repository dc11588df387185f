// This file is compiled once per instruction set, named by TRAINYARD_ISA. It includes no code that the linker
// could share with other units, as that code would be compiled for this set.
#include "kernels/cpu/hash_micro.hpp"

namespace trainyard::kernels {
namespace {

typedef float Vector __attribute__((vector_size(64)));
typedef float Anywhere __attribute__((vector_size(64), aligned(4), may_alias));
typedef std::uint32_t Words __attribute__((vector_size(64)));
typedef std::uint32_t WordsAnywhere __attribute__((vector_size(64), aligned(4), may_alias));

#if defined(__AVX512F__)
constexpr int most_blocks = 8;  // sums that fit in the registers
#elif defined(__AVX2__)
constexpr int most_blocks = 4;
#else
constexpr int most_blocks = 2;
#endif

#define TRAINYARD_UNROLL _Pragma("GCC unroll 16")

template <int blocks>
void project_some(float* sums, const float* x, std::int64_t width, const float* signs,
                  std::int64_t functions) {
  Vector all[blocks];
  TRAINYARD_UNROLL
  for (int b = 0; b < blocks; ++b) all[b] = Vector{};
  for (std::int64_t i = 0; i < width; ++i, signs += functions) {
    TRAINYARD_UNROLL
    for (int b = 0; b < blocks; ++b)
      all[b] += x[i] * *reinterpret_cast<const Anywhere*>(signs + b * hash_lanes);
  }
  TRAINYARD_UNROLL
  for (int b = 0; b < blocks; ++b) *reinterpret_cast<Anywhere*>(sums + b * hash_lanes) = all[b];
}

void project(float* sums, const float* x, std::int64_t width, const float* signs, std::int64_t functions) {
  std::int64_t f = 0;
  for (; f + most_blocks * hash_lanes <= functions; f += most_blocks * hash_lanes)
    project_some<most_blocks>(sums + f, x, width, signs + f, functions);
  for (; f < functions; f += hash_lanes) project_some<1>(sums + f, x, width, signs + f, functions);
}

void largest(std::int32_t* places, const float* x, const std::int32_t* members, std::int64_t bin,
             std::int64_t functions, bool zeros_count) {
  for (std::int64_t f = 0; f < functions; f += hash_lanes) {
    float best[hash_lanes];
    std::int32_t place[hash_lanes];
    for (int l = 0; l < hash_lanes; ++l) {
      best[l] = -__builtin_inff();
      place[l] = static_cast<std::int32_t>(bin);
    }
    for (std::int64_t j = 0; j < bin; ++j) {
      const std::int32_t* const member = members + j * functions + f;
      for (int l = 0; l < hash_lanes; ++l) {
        const float value = x[member[l]];
        const bool better = (value > best[l]) & ((value != 0.0f) | zeros_count);
        best[l] = better ? value : best[l];
        place[l] = better ? static_cast<std::int32_t>(j) : place[l];
      }
    }
    __builtin_memcpy(places + f, place, sizeof place);
  }
}

template <int blocks>
void least_some(std::uint32_t* least, const std::int32_t* coordinates, std::int64_t count,
                const std::uint32_t* priorities, std::int64_t functions) {
  Words all[blocks];
  TRAINYARD_UNROLL
  for (int b = 0; b < blocks; ++b) all[b] = ~Words{};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t* const row = priorities + coordinates[i] * functions;
    TRAINYARD_UNROLL
    for (int b = 0; b < blocks; ++b) {
      const Words given = *reinterpret_cast<const WordsAnywhere*>(row + b * hash_lanes);
      all[b] = given < all[b] ? given : all[b];
    }
  }
  TRAINYARD_UNROLL
  for (int b = 0; b < blocks; ++b) *reinterpret_cast<WordsAnywhere*>(least + b * hash_lanes) = all[b];
}

void least(std::uint32_t* least, const std::int32_t* coordinates, std::int64_t count,
           const std::uint32_t* priorities, std::int64_t functions) {
  std::int64_t f = 0;
  for (; f + most_blocks * hash_lanes <= functions; f += most_blocks * hash_lanes)
    least_some<most_blocks>(least + f, coordinates, count, priorities + f, functions);
  for (; f < functions; f += hash_lanes)
    least_some<1>(least + f, coordinates, count, priorities + f, functions);
}

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(hash_, isa)
const HashKernels TRAINYARD_NAME(TRAINYARD_ISA) = {project, largest, least};

}  // namespace trainyard::kernels
