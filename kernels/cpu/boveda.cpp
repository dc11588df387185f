#include "kernels/cpu/boveda.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/cpu/boveda_micro.hpp"

namespace trainyard::kernels::boveda {
namespace {

constexpr char magic[4] = {'B', 'V', 'D', 'A'};
constexpr std::uint8_t version = 1;
constexpr std::uint64_t raw_flag = std::uint64_t{1} << 63;

/// The first bytes of a container, as they lie there. All numbers are little-endian.
struct Header {
  char magic[4];
  std::uint8_t version, element, map, layout, zero, reserved;
  std::uint16_t group;
  std::uint32_t block;
  std::uint64_t count, size;
  std::uint64_t hash;  ///< of what stands before it
};
static_assert(sizeof(Header) == header_bytes && offsetof(Header, hash) == 32 &&
              offsetof(Header, block) == 12);

/// Says where a block begins, and whether it is stored as it is.
struct Entry {
  std::uint64_t place;  ///< with raw_flag
  std::uint64_t hash;

  std::uint64_t offset() const { return place & ~raw_flag; }
  bool raw() const { return (place & raw_flag) != 0; }
};
static_assert(sizeof(Entry) == entry_bytes);

const Kernels& kernels_for(Isa isa) {
  if (!has_form(isa)) throw std::invalid_argument("boveda: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return boveda_avx512;
  if (isa == Isa::avx2) return boveda_avx2;
#endif
  return boveda_portable;
}

/// Returns what unpacks a container fastest: where an integer is stored in the layout stream, BMI2 does it, and stores
/// of 64 bytes that begin within a line of the cache would cost more than those of 32 do.
const Kernels& readers_for(Isa isa, const Recipe& recipe) {
  const bool avx512 = isa == Isa::avx512 && has_form(isa) && has_form(Isa::avx2);
  return kernels_for(avx512 && recipe.layout == Layout::stream ? Isa::avx2 : isa);
}

/// Returns what is wrong with a recipe; null if nothing is.
const char* fault_of(const Recipe& recipe) {
  const auto& [element, map, layout, zero, group, block] = recipe;
  if (element > Element::float64) return "its element is none that is known";
  if (map > Map::zigzag || layout > Layout::lane || zero > Zero::bitmap)
    return "its map, layout or zero mode is none that is known";
  const bool fits = layout == Layout::stream
                        ? group == 8 || group == 16 || group == 32 || group == 64 || group == 256
                    : layout == Layout::plane ? group == 64
                                              : group == 16 || group == 32;
  if (!fits)
    return "its group is none of its layout: stream has 8, 16, 32, 64 and 256, plane 64, lane 16 and 32";
  if (layout == Layout::lane && zero != Zero::none)
    return "the layout lane has no bitmap, as its lanes would advance by different numbers of bits";
  if (block < least_block || block > most_block || block % 64 != 0 || block % group != 0)
    return "its block is no multiple of 64 and of the group between 256 and 16384";
  return nullptr;
}

/// Returns the seed of a block's hash: a block that lies at another one's place is noticed.
std::uint64_t seed_of(std::uint64_t block, bool raw) {
  return block << 1 | (raw ? 1 : 0);
}

Header header_of(const Recipe& recipe, std::uint64_t count, std::uint64_t size) {
  Header header = {.magic = {},
                   .version = version,
                   .element = static_cast<std::uint8_t>(recipe.element),
                   .map = static_cast<std::uint8_t>(recipe.map),
                   .layout = static_cast<std::uint8_t>(recipe.layout),
                   .zero = static_cast<std::uint8_t>(recipe.zero),
                   .reserved = 0,
                   .group = recipe.group,
                   .block = recipe.block,
                   .count = count,
                   .size = size,
                   .hash = 0};
  std::memcpy(header.magic, magic, sizeof magic);
  return header;
}

/// Reads an entry, and where the block that it is of ends.
struct Place {
  Entry entry;
  std::uint64_t end;
};
Place place_of(std::span<const std::byte> code, const Container& container, std::uint64_t block) {
  Place place{};
  const std::byte* const at = code.data() + header_bytes + block * entry_bytes;
  std::memcpy(&place.entry, at, entry_bytes);
  place.end = code.size();
  if (block + 1 < container.blocks()) {
    Entry next;
    std::memcpy(&next, at + entry_bytes, entry_bytes);
    place.end = next.offset();
  }
  const std::uint64_t first = header_bytes + container.blocks() * entry_bytes, offset = place.entry.offset();
  if (offset < first || (block == 0 && offset != first) || place.end < offset || place.end > code.size())
    throw Malformed("block " + std::to_string(block) + " does not lie within it");
  return place;
}

void decode_at(std::span<const std::byte> code, const Container& container, std::uint64_t block,
               std::byte* values, const Kernels& kernels) {
  const auto [entry, end] = place_of(code, container, block);
  const std::byte* const packed = code.data() + entry.offset();
  const auto size = static_cast<std::size_t>(end - entry.offset());
  const auto count = static_cast<std::size_t>(
      std::min<std::uint64_t>(container.recipe.block, container.count - block * container.recipe.block));
  if (kernels.hash(packed, size, seed_of(block, entry.raw())) != entry.hash)
    throw Malformed("block " + std::to_string(block) + " is not as it was written: its XXH3 differs");
  const std::size_t whole = count * element_bytes(container.recipe.element);
  const bool fits = entry.raw() ? size == whole : container.recipe.element != Element::bytes;
  if (fits && entry.raw()) std::memcpy(values, packed, whole);
  if (!fits || (!entry.raw() && !kernels.unpack(container.recipe, packed, size, values, count)))
    throw Malformed("block " + std::to_string(block) + " does not have the length that its widths ask for");
}

}  // namespace

bool has_form(Isa isa) {
#if defined(__x86_64__)
  if (isa != Isa::portable && !__builtin_cpu_supports("bmi2")) return false;
#endif
  return supported(isa);
}

std::size_t element_bytes(Element element) {
  switch (element) {
    case Element::int16:
    case Element::bfloat16:
    case Element::float16: return 2;
    case Element::float32: return 4;
    case Element::float64: return 8;
    default: return 1;
  }
}

std::size_t bound(const Recipe& recipe, std::size_t size) {
  const std::size_t block = recipe.block * element_bytes(recipe.element);
  return header_bytes + (size + block - 1) / block * entry_bytes + size + slack_of(recipe.block);
}

std::size_t encode(const Recipe& recipe, std::span<const std::byte> values, std::span<std::byte> code,
                   bool packed, Isa isa) {
  if (const char* fault = fault_of(recipe)) throw std::invalid_argument(std::string("boveda: ") + fault);
  const std::size_t width = element_bytes(recipe.element);
  if (values.size() % width != 0 || code.size() < bound(recipe, values.size()))
    throw std::invalid_argument("boveda: a part of a value, or too little room");
  const Kernels& kernels = kernels_for(isa);
  const Container container{recipe, values.size() / width};
  std::byte* const begin = code.data();
  std::byte* out = begin + header_bytes + container.blocks() * entry_bytes;
  for (std::uint64_t block = 0; block < container.blocks(); ++block) {
    const std::byte* const in = values.data() + block * recipe.block * width;
    const auto count = std::min<std::size_t>(recipe.block, container.count - block * recipe.block);
    std::size_t size = count * width;
    bool raw = !packed || recipe.element == Element::bytes;
    if (!raw) {
      const std::size_t length = kernels.pack(recipe, in, count, out);
      raw = length >= size;
      if (!raw) size = length;
    }
    if (raw) std::memcpy(out, in, size);
    const Entry entry{static_cast<std::uint64_t>(out - begin) | (raw ? raw_flag : 0),
                      kernels.hash(out, size, seed_of(block, raw))};
    std::memcpy(begin + header_bytes + block * entry_bytes, &entry, entry_bytes);
    out += size;
  }
  Header header = header_of(recipe, container.count, static_cast<std::uint64_t>(out - begin));
  header.hash = kernels.hash(reinterpret_cast<const std::byte*>(&header), offsetof(Header, hash), 0);
  std::memcpy(begin, &header, header_bytes);
  return header.size;
}

Container container_of(std::span<const std::byte> code) {
  Header header;
  if (code.size() < header_bytes) throw Malformed("it is shorter than a header");
  std::memcpy(&header, code.data(), header_bytes);
  if (std::memcmp(header.magic, magic, sizeof magic) != 0) throw Malformed("it does not begin as one");
  if (header.version != version)
    throw Malformed("it is of version " + std::to_string(header.version) + ", and version " +
                    std::to_string(version) + " is read here");
  if (boveda_portable.hash(code.data(), offsetof(Header, hash), 0) != header.hash)
    throw Malformed("its header is not as it was written: its XXH3 differs");
  const Container container{
      {static_cast<Element>(header.element), static_cast<Map>(header.map), static_cast<Layout>(header.layout),
       static_cast<Zero>(header.zero), header.group, header.block},
      header.count};
  if (const char* fault = fault_of(container.recipe)) throw Malformed(fault);
  if (header.size != code.size())
    throw Malformed("it has " + std::to_string(code.size()) + " bytes, and its header says " +
                    std::to_string(header.size));
  // A count near 2^64 would wrap around.
  const bool too_many = header.count > std::uint64_t{1} << 56;
  if (header.reserved != 0 || too_many || (code.size() - header_bytes) / entry_bytes < container.blocks() ||
      (container.count == 0 && code.size() != header_bytes))
    throw Malformed("its header asks for more or fewer blocks than it has");
  return container;
}

void decode(std::span<const std::byte> code, std::span<std::byte> values, Isa isa) {
  const Container container = container_of(code);
  const Kernels& kernels = readers_for(isa, container.recipe);
  const std::size_t width = element_bytes(container.recipe.element);
  if (values.size() / width != container.count || values.size() % width != 0)
    throw Malformed("it holds " + std::to_string(container.count) + " values of " + std::to_string(width) +
                    " bytes, and not " + std::to_string(values.size()) + " bytes");
  for (std::uint64_t block = 0; block < container.blocks(); ++block)
    decode_at(code, container, block, values.data() + block * container.recipe.block * width, kernels);
}

void decode_block(std::span<const std::byte> code, std::uint64_t block, std::span<std::byte> values,
                  Isa isa) {
  const Container container = container_of(code);
  const Kernels& kernels = readers_for(isa, container.recipe);
  if (block >= container.blocks()) throw std::out_of_range("boveda: the container has not so many blocks");
  const std::uint64_t count =
      std::min<std::uint64_t>(container.recipe.block, container.count - block * container.recipe.block);
  if (values.size() != count * element_bytes(container.recipe.element))
    throw std::invalid_argument("boveda: not the room of the values of this block");
  decode_at(code, container, block, values.data(), kernels);
}

}  // namespace trainyard::kernels::boveda
