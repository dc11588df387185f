// This file is compiled once per instruction set, named by TRAINYARD_ISA. It includes no code that the linker
// could share with other units, as that code would be compiled for this set.
#if defined(__AVX2__)  // whose form has BMI2, too: boveda.cpp asks the processor for it
#pragma GCC target("bmi,bmi2,lzcnt,popcnt")
#endif
#define XXH_INLINE_ALL
#include "kernels/cpu/boveda_micro.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif
#include <xxhash.h>

namespace trainyard::kernels::boveda {
namespace {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

constexpr std::size_t most_groups = most_block / 8;
/// What a byte of a word stands for in masks of all its bytes, and of all its 16-bit halves.
constexpr u64 each_byte = 0x0101010101010101, each_half = 0x0001000100010001;

template <class T>
T load(const void* at) {
  T value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void store(void* at, T value) {
  __builtin_memcpy(at, &value, sizeof value);
}

std::size_t rounded(std::size_t count, std::size_t to) {
  return (count + to - 1) / to * to;
}

unsigned ones(u64 bits) {
  return static_cast<unsigned>(__builtin_popcountll(bits));
}

/// Returns a word whose low `n` bits are set; n is at most 64.
constexpr u64 low_bits(unsigned n) {
  return n >= 64 ? ~u64{0} : (u64{1} << n) - 1;
}

// --- Values and small numbers -------------------------------------------------------------------------------

template <class T>
void to_small(T* small, const u8* values, std::size_t count, Map map) {
  if (map == Map::identity) return void(__builtin_memcpy(small, values, count * sizeof(T)));
  constexpr int sign = 8 * sizeof(T) - 1;
  for (std::size_t i = 0; i < count; ++i) {
    const T value = load<T>(values + i * sizeof(T));
    small[i] = static_cast<T>(static_cast<T>(value << 1) ^ static_cast<T>(-(value >> sign)));
  }
}

template <class T>
void from_small(u8* values, const T* small, std::size_t count, Map map) {
  if (map == Map::identity) return void(__builtin_memcpy(values, small, count * sizeof(T)));
  for (std::size_t i = 0; i < count; ++i) {
    const T odd = static_cast<T>(-(small[i] & 1));
    store(values + i * sizeof(T), static_cast<T>(static_cast<T>(small[i] >> 1) ^ odd));
  }
}

// --- Words of eight bytes: eight values of 8 bits or four of 16 ----------------------------------------------

template <class T>
constexpr unsigned per_word = 8 / sizeof(T);

/// Masks of the low bits of each value, by their number; 31 is the largest that a tag can say.
struct Masks {
  u64 bytes[32], halves[32];
};
constexpr Masks all_masks() {
  Masks masks{};
  for (unsigned w = 0; w < 32; ++w) {
    masks.bytes[w] = each_byte * (w < 8 ? (u64{1} << w) - 1 : 0xff);
    masks.halves[w] = each_half * (w < 16 ? (u64{1} << w) - 1 : 0xffff);
  }
  return masks;
}
constexpr Masks masks_by_width = all_masks();

template <class T>
u64 value_masks(unsigned width) {
  return sizeof(T) == 1 ? masks_by_width.bytes[width] : masks_by_width.halves[width];
}

/// Returns a word in which each value that is not zero has all its bits set.
template <class T>
u64 nonzero_mask(u64 word) {
  constexpr int top = 8 * sizeof(T) - 1;
  constexpr u64 high = (sizeof(T) == 1 ? each_byte : each_half) << top;
  const u64 flags = (((word & ~high) + ~high) | word) & high;
  return ((flags >> top) * 2 - (flags >> top)) * low_bits(8 * sizeof(T));
}

#if defined(__AVX2__)

/// Returns the low bits of the values, back to back. They have no others.
template <class T>
u64 squeeze(u64 word, unsigned width) {
  return _pext_u64(word, value_masks<T>(width));
}
template <class T>
u64 spread(u64 bits, unsigned width) {
  return _pdep_u64(bits, value_masks<T>(width));
}

/// The same of those values alone that `mask` has.
template <class T>
u64 squeeze_some(u64 word, unsigned width, u64 mask) {
  return _pext_u64(word, value_masks<T>(width) & mask);
}
template <class T>
u64 spread_some(u64 bits, unsigned width, u64 mask) {
  return _pdep_u64(bits, value_masks<T>(width) & mask);
}

/// Returns one bit for each value that `mask` has, and the mask of such bits.
template <class T>
u64 flags_of(u64 mask) {
  return _pext_u64(mask, value_masks<T>(1));
}
template <class T>
u64 mask_of(u64 flags) {
  return _pdep_u64(flags, value_masks<T>(1)) * low_bits(8 * sizeof(T));
}

#else

/// Returns `word` with the upper half of each field of 2 * `from` bits moved down to the bit `to`.
u64 fold(u64 word, unsigned from, unsigned to, u64 lower) {
  return (word & lower) | ((word & ~lower) >> (from - to));
}
u64 unfold(u64 word, unsigned from, unsigned to, u64 fields) {
  return (word & (fields * low_bits(to))) |
         ((word & (fields * (low_bits(2 * to) & ~low_bits(to)))) << (from - to));
}

constexpr u64 each_quarter = 0x0000000100000001;

template <class T>
u64 squeeze(u64 word, unsigned width) {
  unsigned w = width;
  if constexpr (sizeof(T) == 1) {
    word = fold(word, 8, w, each_half * 0xff);
    w *= 2;
  }
  word = fold(word, 16, w, each_quarter * 0xffff);
  return fold(word, 32, 2 * w, 0xffffffff);
}
template <class T>
u64 spread(u64 bits, unsigned width) {
  const unsigned w = sizeof(T) == 1 ? 2 * width : width;
  bits = unfold(bits & low_bits(4 * w), 32, 2 * w, 1);
  bits = unfold(bits, 16, w, each_quarter);
  return sizeof(T) == 1 ? unfold(bits, 8, width, each_half) : bits;
}

template <class T>
u64 squeeze_some(u64 word, unsigned width, u64 mask) {
  u64 bits = 0;
  unsigned fill = 0;
  for (unsigned i = 0; i < per_word<T>; ++i) {
    const unsigned at = i * 8 * sizeof(T);
    if ((mask >> at & 1) == 0 || width == 0) continue;
    bits |= (word >> at & low_bits(width)) << fill;
    fill += width;
  }
  return bits;
}
template <class T>
u64 spread_some(u64 bits, unsigned width, u64 mask) {
  u64 word = 0;
  unsigned fill = 0;
  for (unsigned i = 0; i < per_word<T>; ++i) {
    const unsigned at = i * 8 * sizeof(T);
    if ((mask >> at & 1) == 0 || width == 0) continue;
    word |= (bits >> fill & low_bits(width)) << at;
    fill += width;
  }
  return word;
}

template <class T>
u64 flags_of(u64 mask) {
  return squeeze<T>(mask & value_masks<T>(1), 1);
}
template <class T>
u64 mask_of(u64 flags) {
  return spread<T>(flags, 1) * low_bits(8 * sizeof(T));
}

#endif

// --- Bits one after the other --------------------------------------------------------------------------------

/// Writes up to nine bytes beyond the bits that it was given.
class BitWriter {
 public:
  explicit BitWriter(u8* out) : out_(out) {}

  /// `bits` has none but its low `count`, at most 64.
  void put(u64 bits, unsigned count) {
    const u64 low = word_ | bits << fill_, high = bits >> 1 >> (63 - fill_);
    store(out_, low);
    const unsigned end = fill_ + count;
    out_ += end / 8;
    word_ = end >= 64 ? high : low >> (end & 56);
    fill_ = end % 8;
  }

  /// Returns where the last byte ends.
  u8* end() {
    *out_ = static_cast<u8>(word_);
    return out_ + (fill_ + 7) / 8;
  }

 private:
  u8* out_;
  u64 word_ = 0;  ///< the bits after the last whole byte
  unsigned fill_ = 0;
};

/// Reads bits; up to 16 bytes from where they begin are read.
u64 bits_at(const u8* from, u64 bit, unsigned count) {
  const u8* const at = from + bit / 8;
  const unsigned shift = bit % 8;
  const u64 high = static_cast<u64>(at[8]) << 1 << (63 - shift);
  return (load<u64>(at) >> shift | high) & low_bits(count);
}

/// The most bytes that a group takes, and what loads of whole words read after them. Groups that begin nearer to
/// the end of a block are read from a copy, so that nothing beyond the block is read.
constexpr std::size_t beyond = 560;

/// Returns `rest`, which has the bytes up to `end`, at most `beyond`, and zeros after them.
const u8* copied_to(u8* rest, const u8* from, const u8* end) {
  const std::size_t size = from < end ? static_cast<std::size_t>(end - from) : 0;
  __builtin_memcpy(rest, from, size);
  __builtin_memset(rest + size, 0, 32);
  return rest;
}

/// Writes the widths as tags of four or five bits, of which eight take four or five bytes. Returns their end.
u8* write_tags(u8* out, const u8* widths, std::size_t groups, unsigned tag) {
  u8* const end = out + (groups * tag + 7) / 8;
  for (std::size_t g = 0; g < groups; g += 8, out += tag) store(out, squeeze<u8>(load<u64>(widths + g), tag));
  return end;
}

/// `from` has at least `size` bytes, those of the tags among them.
void read_tags(u8* widths, const u8* from, std::size_t size, std::size_t groups, unsigned tag) {
  std::size_t g = 0, at = 0;
  for (; g < groups && at + 8 <= size; g += 8, at += tag)
    store(widths + g, spread<u8>(load<u64>(from + at), tag));
  for (; g < groups; g += 8, at += tag) {
    u64 word = 0;
    for (std::size_t i = 0; i < tag && at + i < size; ++i) word |= static_cast<u64>(from[at + i]) << 8 * i;
    store(widths + g, spread<u8>(word, tag));
  }
  __builtin_memset(widths + groups, 0, 8);  // what was read beyond the last tag
}

template <class T>
constexpr unsigned tag_bits = sizeof(T) == 1 ? 4 : 5;

// --- Layout stream: the values of a group in order -------------------------------------------------------------

/// Finds the bits that all values of each group need. `words` is a constant where this is called with the usual
/// ones.
template <class T>
[[gnu::always_inline]] inline void widths_of(u8* widths, const T* small, std::size_t groups, unsigned words) {
  T ors[most_block / per_word<T>], all[most_groups];
  for (std::size_t i = 0; i < groups * words; ++i) {
    u64 word = load<u64>(small + i * per_word<T>);
    word |= word >> 32;
    word |= word >> 16;
    if (sizeof(T) == 1) word |= word >> 8;
    ors[i] = static_cast<T>(word);
  }
  for (std::size_t g = 0; g < groups; ++g) {
    T any = 0;
    for (unsigned k = 0; k < words; ++k) any |= ors[g * words + k];
    all[g] = any;
  }
  for (std::size_t g = 0; g < groups; ++g) {
    u8 width = 0;
    for (unsigned bit = 0; bit < 8 * sizeof(T); ++bit) width += all[g] >> bit != 0;
    widths[g] = width;
  }
}

/// Writes a word of 8-bit values, which takes whole bytes, or two of 16-bit values.
u8* put_word(u8* out, const u8* small, unsigned width) {
  store(out, squeeze<u8>(load<u64>(small), width));
  return out + width;
}
u8* put_word(u8* out, const u16* small, unsigned width) {
  const u64 low = squeeze<u16>(load<u64>(small), width), high = squeeze<u16>(load<u64>(small + 4), width);
  const unsigned half = width / 2, shift = 4 * (width % 2);
  store(out, low);
  store(out + half, shift == 0 ? high : high << shift | low >> 8 * half);
  return out + width;
}
const u8* take_word(u8* small, const u8* from, unsigned width) {
  store(small, spread<u8>(load<u64>(from), width));
  return from + width;
}
const u8* take_word(u16* small, const u8* from, unsigned width) {
  store(small, spread<u16>(load<u64>(from), width));
  store(small + 4, spread<u16>(load<u64>(from + width / 2) >> 4 * (width % 2), width));
  return from + width;
}

/// `group` is a constant where this is called with the usual ones.
template <class T>
[[gnu::always_inline]] inline u8* stream_pack(u8* out, const T* small, const u8* widths, std::size_t groups,
                                              unsigned group) {
  for (std::size_t g = 0; g < groups; ++g, small += group)
    for (unsigned i = 0; i < group; i += 8) out = put_word(out, small + i, widths[g]);
  return out;
}

template <class T>
[[gnu::always_inline]] inline void stream_unpack(T* small, const u8* from, const u8* end, const u8* widths,
                                                 std::size_t groups, unsigned group) {
  u8 rest[2 * beyond];
  std::size_t g = 0;
  const auto step = static_cast<std::ptrdiff_t>(group * sizeof(T) + 16);
  for (; g < groups && end - from >= step; ++g, small += group)
    for (unsigned i = 0; i < group; i += 8) from = take_word(small + i, from, widths[g]);
  from = copied_to(rest, from, end);
  for (; g < groups; ++g, small += group)
    for (unsigned i = 0; i < group; i += 8) from = take_word(small + i, from, widths[g]);
}

/// Writes the bits of those values alone that are not zero; `bitmap` has one bit for each value.
template <class T>
u8* stream_pack_some(u8* out, const T* small, const u8* widths, std::size_t groups, unsigned words) {
  BitWriter writer(out);
  for (std::size_t g = 0; g < groups; ++g)
    for (unsigned k = 0; k < words; ++k, small += per_word<T>) {
      const u64 word = load<u64>(small), mask = nonzero_mask<T>(word);
      writer.put(squeeze_some<T>(word, widths[g], mask), ones(mask & value_masks<T>(widths[g])));
    }
  return writer.end();
}

/// Returns the flags of the values of a word: eight or four bits.
template <class T>
u64 flags_at(const u8* bitmap, std::size_t word) {
  return sizeof(T) == 1 ? bitmap[word] : bitmap[word / 2] >> 4 * (word % 2) & 15;
}

template <class T>
void stream_unpack_some(T* small, const u8* from, const u8* end, const u8* bitmap, const u8* widths,
                        std::size_t groups, unsigned words) {
  u8 rest[2 * beyond];
  u64 bit = 0;
  bool copied = false;
  std::size_t at = 0;
  for (std::size_t g = 0; g < groups; ++g)
    for (unsigned k = 0; k < words; ++k, ++at) {
      if (!copied && end - from - static_cast<std::ptrdiff_t>(bit / 8) < 16) {
        from += bit / 8;
        bit %= 8;
        from = copied_to(rest, from, end);
        copied = true;
      }
      const u64 mask = mask_of<T>(flags_at<T>(bitmap, at));
      const unsigned count = ones(mask & value_masks<T>(widths[g]));
      store(small + at * per_word<T>, spread_some<T>(bits_at(from, bit, count), widths[g], mask));
      bit += count;
    }
}

// --- Layout plane: of 64 values the lowest bits, then the next ones ----------------------------------------------

/// Bytes 8 b to 8 b + 7 become the bits b of 64 bytes.
void planes_of(u64* planes, const u8* bytes, unsigned width) {
#if defined(__AVX512BW__)
  const __m512i all = _mm512_loadu_si512(bytes);
  for (unsigned b = 0; b < width; ++b)
    planes[b] = _mm512_test_epi8_mask(all, _mm512_set1_epi8(static_cast<char>(1 << b)));
#elif defined(__AVX2__)
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + 32));
  for (unsigned b = 0; b < width; ++b) {
    const int up = static_cast<int>(7 - b);
    const u64 first = static_cast<u32>(_mm256_movemask_epi8(_mm256_slli_epi16(low, up)));
    planes[b] = first | static_cast<u64>(static_cast<u32>(_mm256_movemask_epi8(_mm256_slli_epi16(high, up))))
                            << 32;
  }
#else
  for (unsigned b = 0; b < width; ++b) planes[b] = 0;
  for (unsigned k = 0; k < 8; ++k) {
    const u64 word = load<u64>(bytes + 8 * k);
    for (unsigned b = 0; b < width; ++b)
      planes[b] |= ((word >> b & each_byte) * 0x0102040810204080 >> 56) << 8 * k;
  }
#endif
}

void from_planes(u8* bytes, const u64* planes, unsigned width) {
#if defined(__AVX512BW__)
  __m512i all = _mm512_setzero_si512();
  for (unsigned b = 0; b < width; ++b)
    all = _mm512_or_si512(all, _mm512_maskz_set1_epi8(planes[b], static_cast<char>(1 << b)));
  _mm512_storeu_si512(bytes, all);
#elif defined(__AVX2__)
  const __m256i places = _mm256_setr_epi64x(0, each_byte, 2 * each_byte, 3 * each_byte);
  const __m256i bits = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
  __m256i half[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (unsigned b = 0; b < width; ++b)
    for (int h = 0; h < 2; ++h) {
      const __m256i spread =
          _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(planes[b] >> 32 * h)), places);
      const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bits), bits);
      half[h] = _mm256_or_si256(half[h], _mm256_and_si256(set, _mm256_set1_epi8(static_cast<char>(1 << b))));
    }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes), half[0]);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes + 32), half[1]);
#else
  for (unsigned k = 0; k < 8; ++k) {
    u64 word = 0;
    for (unsigned b = 0; b < width; ++b) {
      // Each byte has all eight bits, of which it keeps its own, as its lowest one.
      const u64 own = (planes[b] >> 8 * k & 0xff) * each_byte & 0x8040201008040201;
      word |= ((((own & 0x7f7f7f7f7f7f7f7f) + 0x7f7f7f7f7f7f7f7f) | own) >> 7 & each_byte) << b;
    }
    store(bytes + 8 * k, word);
  }
#endif
}

/// Of 16-bit values the planes of their lower bytes come first.
void planes_of(u64* planes, const u16* small, unsigned width) {
  u8 low[64], high[64];
  for (int i = 0; i < 64; ++i) {
    low[i] = static_cast<u8>(small[i]);
    high[i] = static_cast<u8>(small[i] >> 8);
  }
  planes_of(planes, low, width < 8 ? width : 8);
  if (width > 8) planes_of(planes + 8, high, width - 8);
}
void from_planes(u16* small, const u64* planes, unsigned width) {
  u8 low[64], high[64];
  from_planes(low, planes, width < 8 ? width : 8);
  from_planes(high, planes + 8, width < 8 ? 0 : width - 8);
  for (int i = 0; i < 64; ++i) small[i] = static_cast<u16>(low[i] | high[i] << 8);
}

template <class T>
u8* plane_pack(u8* out, const T* small, const u8* widths, std::size_t groups) {
  for (std::size_t g = 0; g < groups; ++g, small += 64) {
    u64 planes[16];
    planes_of(planes, small, widths[g]);
    __builtin_memcpy(out, planes, 8 * widths[g]);
    out += 8 * widths[g];
  }
  return out;
}

template <class T>
void plane_unpack(T* small, const u8* from, const u8* widths, std::size_t groups) {
  for (std::size_t g = 0; g < groups; ++g, small += 64) {
    u64 planes[16];
    __builtin_memcpy(planes, from, 8 * widths[g]);
    from_planes(small, planes, widths[g]);
    from += 8 * widths[g];
  }
}

/// Moves the values that are not zero to the front, and back: their planes are those bits of all planes that
/// the bitmap has.
template <class T>
u8* plane_pack_some(u8* out, const T* small, const u8* bitmap, const u8* widths, std::size_t groups) {
  BitWriter writer(out);
  for (std::size_t g = 0; g < groups; ++g, small += 64) {
    u64 planes[16];
    const u64 flags = load<u64>(bitmap + 8 * g);
#if defined(__AVX2__)
    planes_of(planes, small, widths[g]);
    for (unsigned b = 0; b < widths[g]; ++b) writer.put(_pext_u64(planes[b], flags), ones(flags));
#else
    T dense[64] = {};
    unsigned count = 0;
    for (unsigned i = 0; i < 64; ++i) {
      dense[count] = small[i];
      count += flags >> i & 1;
      if (count == 64) break;
    }
    planes_of(planes, dense, widths[g]);
    for (unsigned b = 0; b < widths[g]; ++b) writer.put(planes[b] & low_bits(count), count);
#endif
  }
  return writer.end();
}

template <class T>
void plane_unpack_some(T* small, const u8* from, const u8* end, const u8* bitmap, const u8* widths,
                       std::size_t groups) {
  u8 rest[2 * beyond];
  u64 bit = 0;
  bool copied = false;
  for (std::size_t g = 0; g < groups; ++g, small += 64) {
    u64 planes[16];
    const u64 flags = load<u64>(bitmap + 8 * g);
    const unsigned count = ones(flags);
    // A group takes 128 bytes at most.
    if (!copied && end - from - static_cast<std::ptrdiff_t>(bit / 8) < static_cast<std::ptrdiff_t>(beyond)) {
      from += bit / 8;
      bit %= 8;
      from = copied_to(rest, from, end);
      copied = true;
    }
    for (unsigned b = 0; b < widths[g]; ++b, bit += count) planes[b] = bits_at(from, bit, count);
#if defined(__AVX2__)
    for (unsigned b = 0; b < widths[g]; ++b) planes[b] = _pdep_u64(planes[b], flags);
    from_planes(small, planes, widths[g]);
#else
    T dense[64];
    from_planes(dense, planes, widths[g]);
    unsigned next = 0;
    for (unsigned i = 0; i < 64; ++i) {
      const bool there = flags >> i & 1;
      small[i] = there ? dense[next] : T{0};
      next += there;
    }
#endif
  }
}

// --- Layout lane: value i of a group in lane i mod 16, all lanes at the same bit ----------------------------------

constexpr unsigned lanes = 16;

template <class T>
struct Wider;
template <>
struct Wider<u8> {
  using type = u16;
};
template <>
struct Wider<u16> {
  using type = u32;
};

template <class T>
u8* lane_pack(u8* out, const T* small, const u8* widths, std::size_t groups, unsigned group) {
  constexpr unsigned bits = 8 * sizeof(T);
  typename Wider<T>::type row[lanes] = {};
  unsigned fill = 0;
  const auto write_row = [&] {
    T whole[lanes];
    for (unsigned l = 0; l < lanes; ++l) whole[l] = static_cast<T>(row[l]);
    __builtin_memcpy(out, whole, sizeof whole);
    out += sizeof whole;
  };
  for (std::size_t g = 0; g < groups; ++g)
    for (unsigned i = 0; i < group; i += lanes, small += lanes) {
      for (unsigned l = 0; l < lanes; ++l)
        row[l] = static_cast<typename Wider<T>::type>(row[l] | small[l] << fill);
      fill += widths[g];
      if (fill < bits) continue;
      write_row();
      for (unsigned l = 0; l < lanes; ++l) row[l] = static_cast<typename Wider<T>::type>(row[l] >> bits);
      fill -= bits;
    }
  if (fill > 0) write_row();
  return out;
}

template <class T>
void lane_unpack(T* small, const u8* from, const u8* widths, std::size_t groups, unsigned group) {
  constexpr unsigned bits = 8 * sizeof(T);
  using Wide = typename Wider<T>::type;
  unsigned bit = 0;
  for (std::size_t g = 0; g < groups; ++g) {
    const auto mask = static_cast<Wide>(low_bits(widths[g]));
    for (unsigned i = 0; i < group; i += lanes, small += lanes) {
      T row[lanes] = {}, next[lanes] = {};
      if (widths[g] > 0) __builtin_memcpy(row, from, sizeof row);
      if (bit + widths[g] > bits) __builtin_memcpy(next, from + sizeof row, sizeof next);
      for (unsigned l = 0; l < lanes; ++l)
        small[l] = static_cast<T>((row[l] | static_cast<Wide>(next[l]) << bits) >> bit & mask);
      bit += widths[g];
      if (bit < bits) continue;
      bit -= bits;
      from += sizeof row;
    }
  }
}

// --- Blocks of integers ------------------------------------------------------------------------------------------

/// Returns the bytes that the groups take beside bitmap and tags; none for a width that T has not.
template <class T>
bool payload_size(std::size_t& size, const Recipe& recipe, const u8* bitmap, const u8* widths,
                  std::size_t groups) {
  u64 bits = 0, too_wide = 0;
  const unsigned group = recipe.group;
  // Eight widths at a time, of which none is above 31: those after the last are zero.
  for (std::size_t g = 0; g < groups; g += 8)
    too_wide |= load<u64>(widths + g) + each_byte * (127 - 8 * sizeof(T));
  if ((too_wide & each_byte << 7) != 0) return false;
  if (recipe.zero == Zero::none) {
    u64 sums = 0;
    for (std::size_t g = 0; g < groups; g += 8) {
      const u64 word = load<u64>(widths + g);
      sums += (word & each_half * 0xff) + (word >> 8 & each_half * 0xff);
    }
    bits = (sums * each_half >> 48) * group;
  } else {
    for (std::size_t g = 0; g < groups; ++g)
      for (unsigned i = 0; i < group / 8; ++i) bits += widths[g] * ones(bitmap[g * (group / 8) + i]);
  }
  size = recipe.layout == Layout::lane ? rounded(bits, lanes * 8 * sizeof(T)) / 8 : (bits + 7) / 8;
  return true;
}

/// Writes bitmap, tags and payload of `padded` small numbers, which are whole groups.
template <class T>
u8* pack_small(u8* out, const Recipe& recipe, const T* small, std::size_t padded) {
  u8 widths[most_groups + 8];
  const std::size_t groups = padded / recipe.group;
  const unsigned words = recipe.group / per_word<T>;
  if (recipe.group == 8)
    widths_of(widths, small, groups, 8 / per_word<T>);
  else if (recipe.group == 16)
    widths_of(widths, small, groups, 16 / per_word<T>);
  else
    widths_of(widths, small, groups, words);
  __builtin_memset(widths + groups, 0, 8);
  const u8* const bitmap = out;
  if (recipe.zero == Zero::bitmap) {
    for (std::size_t i = 0; i < padded; i += 8) {
      u64 flags = flags_of<T>(nonzero_mask<T>(load<u64>(small + i)));
      if (sizeof(T) == 2) flags |= flags_of<T>(nonzero_mask<T>(load<u64>(small + i + 4))) << 4;
      *out++ = static_cast<u8>(flags);
    }
  }
  out = write_tags(out, widths, groups, tag_bits<T>);
  if (recipe.layout == Layout::lane) return lane_pack(out, small, widths, groups, recipe.group);
  if (recipe.layout == Layout::plane)
    return recipe.zero == Zero::none ? plane_pack(out, small, widths, groups)
                                     : plane_pack_some(out, small, bitmap, widths, groups);
  if (recipe.zero == Zero::bitmap) return stream_pack_some(out, small, widths, groups, words);
  if (recipe.group == 8) return stream_pack(out, small, widths, groups, 8);
  if (recipe.group == 16) return stream_pack(out, small, widths, groups, 16);
  return stream_pack(out, small, widths, groups, recipe.group);
}

/// Returns where the payload ends; null if it does not end by `end`.
template <class T>
const u8* unpack_small(T* small, const Recipe& recipe, const u8* from, const u8* end, std::size_t padded) {
  u8 widths[most_groups + 8];
  const std::size_t groups = padded / recipe.group;
  const std::size_t map_size = recipe.zero == Zero::bitmap ? padded / 8 : 0;
  const std::size_t tags = (groups * tag_bits<T> + 7) / 8;
  const auto size = static_cast<std::size_t>(end - from);
  if (size < map_size + tags) return nullptr;
  const u8* const bitmap = from;
  from += map_size;
  read_tags(widths, from, size - map_size, groups, tag_bits<T>);
  from += tags;
  std::size_t payload = 0;
  if (!payload_size<T>(payload, recipe, bitmap, widths, groups)) return nullptr;
  if (payload > static_cast<std::size_t>(end - from)) return nullptr;
  const u8* const last = from + payload;
  const unsigned words = recipe.group / per_word<T>;
  if (recipe.layout == Layout::lane)
    lane_unpack(small, from, widths, groups, recipe.group);
  else if (recipe.layout == Layout::plane && recipe.zero == Zero::none)
    plane_unpack(small, from, widths, groups);
  else if (recipe.layout == Layout::plane)
    plane_unpack_some(small, from, last, bitmap, widths, groups);
  else if (recipe.zero == Zero::bitmap)
    stream_unpack_some(small, from, last, bitmap, widths, groups, words);
  else if (recipe.group == 8)
    stream_unpack(small, from, last, widths, groups, 8);
  else if (recipe.group == 16)
    stream_unpack(small, from, last, widths, groups, 16);
  else
    stream_unpack(small, from, last, widths, groups, recipe.group);
  return last;
}

template <class T>
std::size_t pack_integers(const Recipe& recipe, const u8* values, std::size_t count, u8* out) {
  alignas(64) T small[most_block];
  const std::size_t whole = rounded(count, recipe.group);
  to_small(small, values, count, recipe.map);
  for (std::size_t i = count; i < whole; ++i) small[i] = small[count - 1];
  return static_cast<std::size_t>(pack_small(out, recipe, small, whole) - out);
}

template <class T>
bool unpack_integers(const Recipe& recipe, const u8* packed, std::size_t size, u8* values,
                     std::size_t count) {
  alignas(64) T small[most_block];
  const std::size_t whole = rounded(count, recipe.group);
  const u8* const end = packed + size;
  if (unpack_small(small, recipe, packed, end, whole) != end) return false;
  from_small(values, small, count, recipe.map);
  return true;
}

// --- Blocks of floats: sign and mantissa as they are, exponents as what they lack to the largest of their group ----

/// The parts of a float: its exponent, which goes into a Small; the lowest bytes of its mantissa; and on top of them
/// the rest of the mantissa below the sign.
struct Float32 {
  using Bits = u32;
  using Small = u8;
  static constexpr unsigned exponent = 8, low_bytes = 2, top = 8;
};
struct BFloat16 {
  using Bits = u16;
  using Small = u8;
  static constexpr unsigned exponent = 8, low_bytes = 0, top = 8;
};
struct Float16 {
  using Bits = u16;
  using Small = u8;
  static constexpr unsigned exponent = 5, low_bytes = 1, top = 3;
};
struct Float64 {
  using Bits = u64;
  using Small = u16;
  static constexpr unsigned exponent = 11, low_bytes = 6, top = 5;
};

template <class Form>
constexpr unsigned mantissa = 8 * Form::low_bytes + Form::top - 1;

/// Returns the bytes of all parts of `count` values but their exponents.
template <class Form>
std::size_t rest_size(std::size_t count) {
  return Form::low_bytes * count + (Form::top * count + 7) / 8;
}

template <class Small>
void exponents_to_small(Small* small, u8* largest, std::size_t groups, unsigned group, Zero zero) {
  for (std::size_t g = 0; g < groups; ++g, small += group) {
    Small most = 0;
    for (unsigned i = 0; i < group; ++i) most = small[i] > most ? small[i] : most;
    store(largest + g * sizeof(Small), most);
    if (zero == Zero::none) {
      for (unsigned i = 0; i < group; ++i) small[i] = static_cast<Small>(most - small[i]);
    } else {
      for (unsigned i = 0; i < group; ++i)
        small[i] = small[i] == 0 ? Small{0} : static_cast<Small>(most + 1 - small[i]);
    }
  }
}

template <class Small>
void small_to_exponents(Small* small, const u8* largest, std::size_t groups, unsigned group, Zero zero) {
  for (std::size_t g = 0; g < groups; ++g, small += group) {
    const auto most = load<Small>(largest + g * sizeof(Small));
    if (zero == Zero::none) {
      for (unsigned i = 0; i < group; ++i) small[i] = static_cast<Small>(most - small[i]);
    } else {
      for (unsigned i = 0; i < group; ++i)
        small[i] = small[i] == 0 ? Small{0} : static_cast<Small>(most + 1 - small[i]);
    }
  }
}

template <class Form>
std::size_t pack_floats(const Recipe& recipe, const u8* bytes, std::size_t count, u8* out) {
  using Bits = typename Form::Bits;
  using Small = typename Form::Small;
  alignas(64) Bits values[most_block];
  alignas(64) Small small[most_block];
  const std::size_t whole = rounded(count, recipe.group), groups = whole / recipe.group;
  u8* const begin = out;
  __builtin_memcpy(values, bytes, count * sizeof(Bits));
  for (std::size_t i = count; i < whole; ++i) values[i] = values[count - 1];
  constexpr auto exponents = static_cast<Small>(low_bits(Form::exponent));
  for (std::size_t i = 0; i < whole; ++i)
    small[i] = static_cast<Small>(static_cast<Small>(values[i] >> mantissa<Form>) & exponents);
  exponents_to_small(small, out, groups, recipe.group, recipe.zero);
  out = pack_small(out + groups * sizeof(Small), recipe, small, whole);
  for (std::size_t p = 0; p < Form::low_bytes; ++p, out += count)
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<u8>(values[i] >> 8 * p);
  // Of whole bytes they are written where they belong.
  alignas(64) u8 tops[Form::top == 8 ? 1 : most_block + 8];
  u8* const top = Form::top == 8 ? out : tops;
  constexpr unsigned sign = 8 * sizeof(Bits) - Form::top;
  for (std::size_t i = 0; i < count; ++i)
    top[i] = static_cast<u8>((values[i] >> 8 * Form::low_bytes & low_bits(Form::top - 1)) |
                             (values[i] >> sign & u64{1} << (Form::top - 1)));
  if constexpr (Form::top == 8) return static_cast<std::size_t>(out + count - begin);
  __builtin_memset(top + count, 0, 8);
  return static_cast<std::size_t>(write_tags(out, top, count, Form::top) - begin);
}

template <class Form>
bool unpack_floats(const Recipe& recipe, const u8* packed, std::size_t size, u8* bytes, std::size_t count) {
  using Bits = typename Form::Bits;
  using Small = typename Form::Small;
  alignas(64) Bits values[most_block];
  alignas(64) Small small[most_block];
  const std::size_t whole = rounded(count, recipe.group), groups = whole / recipe.group;
  const std::size_t largest = groups * sizeof(Small), rest = rest_size<Form>(count);
  if (size < largest + rest) return false;
  const u8* const low = packed + size - rest;
  if (unpack_small(small, recipe, packed + largest, low, whole) != low) return false;
  small_to_exponents(small, packed, groups, recipe.group, recipe.zero);
  const u8* top = low + Form::low_bytes * count;
  alignas(64) u8 tops[Form::top == 8 ? 1 : most_block + 8];
  if constexpr (Form::top != 8) {
    read_tags(tops, top, rest - Form::low_bytes * count, count, Form::top);
    top = tops;
  }
  constexpr unsigned sign = 8 * sizeof(Bits) - Form::top;
  for (std::size_t i = 0; i < count; ++i) {
    const auto head = static_cast<Bits>(top[i]);
    auto value =
        static_cast<Bits>(static_cast<Bits>(small[i]) << mantissa<Form> |
                          (head & static_cast<Bits>(low_bits(Form::top - 1))) << 8 * Form::low_bytes);
    value |= static_cast<Bits>((head & Bits{1} << (Form::top - 1)) << sign);
    for (std::size_t p = 0; p < Form::low_bytes; ++p)
      value |= static_cast<Bits>(static_cast<Bits>(low[p * count + i]) << 8 * p);
    values[i] = value;
  }
  __builtin_memcpy(bytes, values, count * sizeof(Bits));
  return true;
}

std::size_t pack(const Recipe& recipe, const std::byte* values, std::size_t count, std::byte* out) {
  const u8* const in = reinterpret_cast<const u8*>(values);
  u8* const to = reinterpret_cast<u8*>(out);
  if (recipe.element == Element::int8) return pack_integers<u8>(recipe, in, count, to);
  if (recipe.element == Element::int16) return pack_integers<u16>(recipe, in, count, to);
  if (recipe.element == Element::float32) return pack_floats<Float32>(recipe, in, count, to);
  if (recipe.element == Element::float16) return pack_floats<Float16>(recipe, in, count, to);
  if (recipe.element == Element::float64) return pack_floats<Float64>(recipe, in, count, to);
  return pack_floats<BFloat16>(recipe, in, count, to);
}

bool unpack(const Recipe& recipe, const std::byte* packed, std::size_t size, std::byte* values,
            std::size_t count) {
  const u8* const from = reinterpret_cast<const u8*>(packed);
  u8* const to = reinterpret_cast<u8*>(values);
  if (recipe.element == Element::int8) return unpack_integers<u8>(recipe, from, size, to, count);
  if (recipe.element == Element::int16) return unpack_integers<u16>(recipe, from, size, to, count);
  if (recipe.element == Element::float32) return unpack_floats<Float32>(recipe, from, size, to, count);
  if (recipe.element == Element::float16) return unpack_floats<Float16>(recipe, from, size, to, count);
  if (recipe.element == Element::float64) return unpack_floats<Float64>(recipe, from, size, to, count);
  return unpack_floats<BFloat16>(recipe, from, size, to, count);
}

std::uint64_t hash(const std::byte* bytes, std::size_t size, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, size, seed);
}

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(boveda_, isa)
const Kernels TRAINYARD_NAME(TRAINYARD_ISA) = {pack, unpack, hash};

}  // namespace trainyard::kernels::boveda
