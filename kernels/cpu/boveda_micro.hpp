// The loops over a block of a container. boveda_micro.cpp is compiled once for each instruction set, and each
// gives one of these tables.
#pragma once

#include "kernels/cpu/boveda.hpp"

namespace trainyard::kernels::boveda {

/// Room that pack() may write to beyond a block of the same size as its values: bitmap, tags, largest exponents,
/// and a last group that is filled up.
constexpr std::size_t slack_of(std::uint32_t block) {
  return block / 2 + 2 * 256 + 64;
}

struct Kernels {
  /// Packs `count` values, at most a block of them. Returns the length; `out` has room for the values
  /// themselves and slack_of(block).
  std::size_t (*pack)(const Recipe& recipe, const std::byte* values, std::size_t count, std::byte* out);
  /// Returns false where `size` bytes are not what pack() makes of `count` values; reads no byte beyond them.
  bool (*unpack)(const Recipe& recipe, const std::byte* packed, std::size_t size, std::byte* values,
                 std::size_t count);
  /// XXH3, 64 bits.
  std::uint64_t (*hash)(const std::byte* bytes, std::size_t size, std::uint64_t seed);
};

extern const Kernels boveda_portable;
#if defined(__x86_64__)
extern const Kernels boveda_avx2, boveda_avx512;
#endif

}  // namespace trainyard::kernels::boveda
