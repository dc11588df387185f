#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>

#include <ATen/core/Tensor.h>

#include <trainyard/error.hpp>
#include <trainyard/random.hpp>

// Instructions are chosen when the library is loaded. Sanitizers instrument the resolvers that target_clones
// makes, which run before their own start-up code.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TRAINYARD_VECTORIZED __attribute__((target_clones("avx2", "default")))
#else
#define TRAINYARD_VECTORIZED
#endif

namespace trainyard {
namespace {

constexpr std::uint32_t multiplier[2] = {0xD2511F53, 0xCD9E8D57};
constexpr std::uint32_t weyl[2] = {0x9E3779B9, 0xBB67AE85};
constexpr int rounds = 10;
constexpr std::size_t lanes = 16;  // blocks computed together: enough independent work to hide a multiply

using Counter = std::array<std::uint32_t, 4>;
using Key = std::array<std::uint32_t, 2>;

/// The place that a stream is read from.
struct Position {
  Key key;
  std::uint64_t block;
  std::uint64_t step;
  std::uint32_t lane;

  /// Block bits 0-31; block bits 32-47 and step bits 32-47; step bits 0-31; lane.
  Counter counter() const {
    return {static_cast<std::uint32_t>(block),
            static_cast<std::uint32_t>((block >> 32 & 0xFFFF) | (step >> 32 << 16)),
            static_cast<std::uint32_t>(step), lane};
  }
};

/// Word w of block l at [w][l].
using Blocks = std::uint32_t[4][lanes];

/// Philox of `lanes` blocks whose counters differ in their first word only.
[[gnu::always_inline]] inline void philox_blocks(Counter first, Key key, Blocks& x) {
  for (std::size_t l = 0; l < lanes; ++l) {
    x[0][l] = first[0] + static_cast<std::uint32_t>(l);
    x[1][l] = first[1];
    x[2][l] = first[2];
    x[3][l] = first[3];
  }
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t l = 0; l < lanes; ++l) {
      const std::uint64_t a = std::uint64_t{multiplier[0]} * x[0][l];
      const std::uint64_t b = std::uint64_t{multiplier[1]} * x[2][l];
      x[0][l] = static_cast<std::uint32_t>(b >> 32) ^ x[1][l] ^ key[0];
      x[1][l] = static_cast<std::uint32_t>(b);
      x[2][l] = static_cast<std::uint32_t>(a >> 32) ^ x[3][l] ^ key[1];
      x[3][l] = static_cast<std::uint32_t>(a);
    }
    key[0] += weyl[0];
    key[1] += weyl[1];
  }
}

/// Element 4k + w of `out` is convert(word w of block k).
template <class T, class Convert>
[[gnu::always_inline]] inline void fill(std::span<T> out, Position at, Convert convert) {
  Blocks words;
  T rest[4 * lanes];
  for (std::size_t i = 0; i < out.size(); i += 4 * lanes, at.block += lanes) {
    philox_blocks(at.counter(), at.key, words);
    // A group in which the first counter word wraps, one in 2^28, is drawn block by block.
    if (static_cast<std::uint32_t>(at.block) > UINT32_MAX - lanes)
      for (std::size_t l = 0; l < lanes; ++l) {
        const Counter block = philox(Position{at.key, at.block + l, at.step, at.lane}.counter(), at.key);
        for (std::size_t w = 0; w < 4; ++w) words[w][l] = block[w];
      }
    const bool whole = out.size() - i >= 4 * lanes;
    T* target = whole ? out.data() + i : rest;
    for (std::size_t l = 0; l < lanes; ++l)
      for (std::size_t w = 0; w < 4; ++w) target[4 * l + w] = convert(words[w][l]);
    if (!whole) std::copy_n(rest, out.size() - i, out.data() + i);
  }
}

// 24-bit numbers fit the signed conversions and comparisons that every vector unit has.
TRAINYARD_VECTORIZED void fill_floats(std::span<float> out, const Position& at) {
  fill(out, at, [](std::uint32_t word) {
    return static_cast<float>(static_cast<std::int32_t>(word >> 8)) * 0x1p-24f;
  });
}

TRAINYARD_VECTORIZED void fill_mask_floats(std::span<float> out, const Position& at, std::int32_t threshold,
                                           float scale) {
  fill(out, at,
       [=](std::uint32_t word) { return static_cast<std::int32_t>(word >> 8) < threshold ? scale : 0.0f; });
}

TRAINYARD_VECTORIZED void fill_raw(std::span<std::uint32_t> out, const Position& at) {
  fill(out, at, [](std::uint32_t word) { return word; });
}

/// FNV-1a over the name, then the finalizer of SplitMix64 over seed and hash: nearby seeds and names give
/// unrelated keys.
Key key_of(std::uint64_t seed, std::string_view owner) {
  std::uint64_t name = 0xCBF29CE484222325;
  for (const char c : owner) name = (name ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  std::uint64_t hash = 0;
  for (const std::uint64_t word : {seed, name}) {
    hash += word + 0x9E3779B97F4A7C15;
    hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9;
    hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EB;
    hash ^= hash >> 31;
  }
  return {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32)};
}

// Elementary functions from operations that every IEEE machine rounds alike: the C library's differ in the
// last bit between processors. Good to 1e-12, far below a float's half ulp.

/// Natural logarithm of a normal number: 2 atanh((m - 1) / (m + 1)) + e ln 2, m in [sqrt(1/2), sqrt(2)].
double portable_log(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  double exponent = static_cast<double>(static_cast<int>(bits >> 52) - 1023);
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000);
  if (m > std::numbers::sqrt2) {
    m *= 0.5;
    exponent += 1.0;
  }
  const double s = (m - 1.0) / (m + 1.0);
  double series = 0.0;
  for (int n = 15; n >= 1; n -= 2) series = series * (s * s) + 1.0 / n;
  return 2.0 * s * series + exponent * std::numbers::ln2;
}

struct Point {
  double cosine, sine;
};

/// Cosine and sine of 2 pi `turns`, turns in [0, 1], by Taylor series around the nearest quarter turn.
Point portable_circle(double turns) {
  const int quarter = static_cast<int>(turns * 4.0 + 0.5);  // NOLINT(bugprone-incorrect-roundings): SIMD
  const double angle = (turns - quarter * 0.25) * (2.0 * std::numbers::pi);
  const double square = angle * angle;
  double cosine = 1.0, sine = 1.0;
  for (int n = 14; n >= 2; n -= 2) {
    cosine = 1.0 - cosine * square / (n * (n - 1));
    sine = 1.0 - sine * square / (n * (n + 1));
  }
  sine *= angle;
  switch (quarter & 3) {
    case 0: return {cosine, sine};
    case 1: return {-sine, cosine};
    case 2: return {-cosine, -sine};
    default: return {sine, -cosine};
  }
}

/// Calls write(data, count) with the tensor's element type.
template <class Write>
void write_elements(const at::Tensor& tensor, Write write) {
  if (!tensor.is_contiguous() || !tensor.device().is_cpu())
    throw PluginError("random fill: the tensor is not contiguous or not on the CPU; fill a fresh CPU tensor");
  const auto count = static_cast<std::size_t>(tensor.numel());
  if (tensor.scalar_type() == at::kFloat) return write(tensor.mutable_data_ptr<float>(), count);
  if (tensor.scalar_type() == at::kDouble) return write(tensor.mutable_data_ptr<double>(), count);
  throw PluginError(std::string("random fill: the tensor holds ") + c10::toString(tensor.scalar_type()) +
                    ", expected Float or Double");
}

constexpr std::size_t chunk = 4096;  // elements drawn at a time

}  // namespace

Counter philox(Counter counter, Key key) {
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t a = std::uint64_t{multiplier[0]} * counter[0];
    const std::uint64_t b = std::uint64_t{multiplier[1]} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + weyl[0], key[1] + weyl[1]};
  }
  return counter;
}

RandomStream::RandomStream(std::uint64_t seed, std::string_view owner, std::uint64_t step, std::uint32_t lane)
    : RandomStream(key_of(seed, owner), step, lane) {}

RandomStream::RandomStream(Key key, std::uint64_t step, std::uint32_t lane)
    : key_(key), step_(step), lane_(lane) {
  if (step >> 48 != 0) throw std::out_of_range("RandomStream: the step needs more than 48 bits");
}

RandomStream RandomStream::at(std::uint64_t step, std::uint32_t lane) const {
  return RandomStream(key_, step, lane);
}

Counter RandomStream::block(std::uint64_t index) const {
  return philox(Position{key_, index, step_, lane_}.counter(), key_);
}

std::uint64_t RandomStream::bits(std::uint64_t index) const {
  const Counter words = block(index / 2);
  const std::size_t half = 2 * (index % 2);
  return words[half] | std::uint64_t{words[half + 1]} << 32;
}

double RandomStream::uniform(std::uint64_t index) const {
  return static_cast<double>(bits(index) >> 11) * 0x1p-53;
}

std::uint64_t RandomStream::below(std::uint64_t index, std::uint64_t bound) const {
  __extension__ using Wide = unsigned __int128;
  const Counter words = block(index);
  const std::uint64_t high = words[0] | std::uint64_t{words[1]} << 32;
  const std::uint64_t low = words[2] | std::uint64_t{words[3]} << 32;
  return static_cast<std::uint64_t>((Wide{high} * bound + (Wide{low} * bound >> 64)) >> 64);
}

void RandomStream::fill_words(std::span<std::uint32_t> out, std::uint64_t first_block) const {
  fill_raw(out, {key_, first_block, step_, lane_});
}

void RandomStream::fill_uniform(std::span<float> out, std::uint64_t first_block) const {
  fill_floats(out, {key_, first_block, step_, lane_});
}

void RandomStream::fill_mask(std::span<float> out, double keep, std::uint64_t first_block) const {
  const auto threshold = static_cast<std::int32_t>(std::ceil(keep * 0x1p24));
  fill_mask_floats(out, {key_, first_block, step_, lane_}, threshold, static_cast<float>(1.0 / keep));
}

void fill_uniform(at::Tensor& tensor, const RandomStream& stream, double low, double high) {
  write_elements(tensor, [&]<class T>(T* data, std::size_t count) {
    float numbers[chunk];
    for (std::size_t i = 0; i < count; i += chunk) {
      const std::span<float> part(numbers, std::min(chunk, count - i));
      stream.fill_uniform(part, i / 4);
      for (std::size_t k = 0; k < part.size(); ++k)
        data[i + k] = static_cast<T>(low + (high - low) * static_cast<double>(part[k]));
    }
  });
}

void fill_normal(at::Tensor& tensor, const RandomStream& stream, double mean, double deviation,
                 std::uint64_t first_block) {
  write_elements(tensor, [&]<class T>(T* data, std::size_t count) {
    std::uint32_t words[chunk];
    for (std::size_t i = 0; i < count; i += chunk) {
      const std::size_t size = std::min(chunk, count - i);
      stream.fill_words(words, first_block + i / 4);
      for (std::size_t k = 0; k < size; k += 2) {
        const double radius = deviation * std::sqrt(-2.0 * portable_log((words[k] + 1.0) * 0x1p-32));
        const Point point = portable_circle(words[k + 1] * 0x1p-32);
        data[i + k] = static_cast<T>(mean + radius * point.cosine);
        if (k + 1 < size) data[i + k + 1] = static_cast<T>(mean + radius * point.sine);
      }
    }
  });
}

}  // namespace trainyard
