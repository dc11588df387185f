// Packs fixed-point values losslessly by group widths, as in "Boveda: Building an On-Chip Deep
// Learning Memory Hierarchy Brick by Brick", MLSys 2021: a small group of values is stored with as many bits
// each as its largest member needs, and a tag says how many. Exponents of floats are packed in the same way.
// The format of a container is described in plugins/codec/boveda/README.md. All instruction sets write the
// same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels::boveda {

/// What the values are. Of `bytes`, every block is stored as it is.
enum class Element : std::uint8_t {
  bytes = 0,
  int8 = 1,
  int16 = 2,
  float32 = 3,
  bfloat16 = 4,
  float16 = 5,
  float64 = 6
};
/// How an integer becomes a number that is small where the integer is near zero.
enum class Map : std::uint8_t { identity = 0, zigzag = 1 };
/// In which order the bits of a group lie.
enum class Layout : std::uint8_t { stream = 0, plane = 1, lane = 2 };
/// With a bitmap, a bit for each value says whether it is zero, and zeros are not stored.
enum class Zero : std::uint8_t { none = 0, bitmap = 1 };

constexpr std::uint32_t least_block = 256, most_block = 16384;  ///< values

struct Recipe {
  Element element = Element::bytes;
  Map map = Map::identity;
  Layout layout = Layout::stream;
  Zero zero = Zero::none;
  std::uint16_t group = 16;  ///< stream: 8, 16, 32, 64, 256; plane: 64; lane: 16, 32
  std::uint32_t block =
      4096;  ///< values: a multiple of 64 and of the group between least_block and most_block

  bool operator==(const Recipe&) const = default;
};

/// Bytes that are no container, or a damaged one.
struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Container {
  Recipe recipe;
  std::uint64_t count = 0;  ///< values

  std::uint64_t blocks() const { return (count + recipe.block - 1) / recipe.block; }
};

constexpr std::size_t header_bytes = 40, entry_bytes = 16;

std::size_t element_bytes(Element element);

/// Returns the bytes that encode() needs for `size` bytes of values; a container has fewer.
std::size_t bound(const Recipe& recipe, std::size_t size);

/// Throws std::invalid_argument for a recipe that is not as described above, for a size that is no multiple
/// of an element's, for too little room and where the processor has not these instructions. Returns the
/// length of the container. With `packed` false all blocks are stored as they are.
std::size_t encode(const Recipe& recipe, std::span<const std::byte> values, std::span<std::byte> code,
                   bool packed = true, Isa isa = fastest_isa());

/// Reads the header alone. Throws Malformed.
Container container_of(std::span<const std::byte> code);

/// Writes all values, whose bytes are as many as `values` has. Throws Malformed; reads nothing beyond `code`.
void decode(std::span<const std::byte> code, std::span<std::byte> values, Isa isa = fastest_isa());

/// Writes the values of one block, of which the last may have fewer. Of `code` it reads the header, the entries
/// of this block and the next, and this block. Throws Malformed, and std::out_of_range for a block that it
/// has not.
void decode_block(std::span<const std::byte> code, std::uint64_t block, std::span<std::byte> values,
                  Isa isa = fastest_isa());

/// Returns whether the processor has what the form for this instruction set takes: BMI2 beside it.
bool has_form(Isa isa);

}  // namespace trainyard::kernels::boveda
