#include "hash_functions.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace slide {
namespace {

using trainyard::RandomStream;

constexpr std::int64_t bin = 8;
constexpr std::size_t most_members = 30;             // of the set that minhash sees
constexpr int most_attempts = 100;                   // to find a bin that is not empty
constexpr std::uint32_t multiplier_lane = 1u << 31;  // of the random numbers; those below are the bins'

std::int64_t padded(std::int64_t functions) {
  return (functions + kernels::hash_lanes - 1) / kernels::hash_lanes * kernels::hash_lanes;
}

/// The first `count` of a permutation of [0, width), at random (Fisher and Yates).
std::vector<std::int32_t> some_of(std::int64_t width, std::int64_t count, const RandomStream& random) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(width));
  std::iota(all.begin(), all.end(), 0);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto chosen = i + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(i),
                                                                   static_cast<std::uint64_t>(width - i)));
    std::swap(all[static_cast<std::size_t>(i)], all[static_cast<std::size_t>(chosen)]);
  }
  all.resize(static_cast<std::size_t>(count));
  return all;
}

/// Of two numbers, all bits in all bits (the finalizer of MurmurHash3).
std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15u + b;
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
  return x ^ x >> 33;
}

/// The coordinates of the largest positive values; of equal ones the first.
std::span<std::int32_t> largest_positive(std::span<const float> x, std::vector<std::int32_t>& buffer) {
  buffer.clear();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i] > 0.0f) buffer.push_back(static_cast<std::int32_t>(i));
  if (buffer.size() <= most_members) return buffer;
  const auto before = [&](std::int32_t a, std::int32_t b) {
    const float of_a = x[static_cast<std::size_t>(a)], of_b = x[static_cast<std::size_t>(b)];
    return of_a > of_b || (of_a == of_b && a < b);
  };
  std::nth_element(buffer.begin(), buffer.begin() + most_members, buffer.end(), before);
  return {buffer.data(), most_members};
}

}  // namespace

int code_bits(Family family) {
  switch (family) {
    case Family::simhash: return 1;
    case Family::dwta:
    case Family::wta: return 3;
    case Family::minhash: return 32;
    case Family::random: return 0;
  }
  return 0;
}

HashFunctions::HashFunctions(const HashShape& shape, const RandomStream& random, std::uint64_t draw,
                             kernels::Isa isa)
    : shape_(shape),
      kernels_(kernels::hash_kernels(isa)),
      functions_(padded(std::int64_t{shape.k} * shape.l)) {
  if (shape.family == Family::simhash) draw_signs(random, draw);
  if (shape.family == Family::wta) draw_bins(random, draw);
  if (shape.family == Family::dwta) draw_shared_bins(random, draw);
  if (shape.family == Family::minhash) {
    priorities_.resize(static_cast<std::size_t>(shape.width * functions_));
    random.at(draw).fill_words(priorities_);
  }
  for (int i = 0; i < shape.k; ++i)
    multipliers_.push_back(random.at(draw, multiplier_lane).bits(static_cast<std::uint64_t>(i)) | 1);
}

void HashFunctions::draw_signs(const RandomStream& random, std::uint64_t draw) {
  signs_.resize(static_cast<std::size_t>(shape_.width * functions_));
  std::vector<std::uint32_t> words(signs_.size());
  random.at(draw).fill_words(words);
  constexpr std::uint64_t thirds = 0x100000000u / 6;  // a sixth each of 1 and -1
  for (std::size_t i = 0; i < signs_.size(); ++i)
    signs_[i] = words[i] < thirds ? 1.0f : words[i] < 2 * thirds ? -1.0f : 0.0f;
}

void HashFunctions::draw_bins(const RandomStream& random, std::uint64_t draw) {
  members_.assign(static_cast<std::size_t>(bin * functions_), 0);
  for (std::int64_t f = 0; f < functions_; ++f) {
    const std::vector<std::int32_t> chosen =
        some_of(shape_.width, bin, random.at(draw, static_cast<std::uint32_t>(f)));
    for (std::int64_t j = 0; j < bin; ++j)
      members_[static_cast<std::size_t>(j * functions_ + f)] = chosen[static_cast<std::size_t>(j)];
  }
}

/// As many permutations as there must be, each cut into bins.
void HashFunctions::draw_shared_bins(const RandomStream& random, std::uint64_t draw) {
  members_.assign(static_cast<std::size_t>(bin * functions_), 0);
  const std::int64_t bins = shape_.width / bin;  // of a permutation
  std::vector<std::int32_t> order;
  for (std::int64_t f = 0; f < functions_; ++f) {
    if (f % bins == 0)
      order = some_of(shape_.width, shape_.width, random.at(draw, static_cast<std::uint32_t>(f / bins)));
    for (std::int64_t j = 0; j < bin; ++j)
      members_[static_cast<std::size_t>(j * functions_ + f)] =
          order[static_cast<std::size_t>(f % bins * bin + j)];
  }
}

void HashFunctions::codes(std::span<const float> x, std::span<std::uint32_t> codes) const {
  thread_local std::vector<float> sums;
  thread_local std::vector<std::int32_t> places, members;
  thread_local std::vector<std::uint32_t> least;
  const auto padded = static_cast<std::size_t>(functions_);
  switch (shape_.family) {
    case Family::simhash:
      sums.resize(padded);
      kernels_.project(sums.data(), x.data(), shape_.width, signs_.data(), functions_);
      for (std::size_t f = 0; f < codes.size(); ++f) codes[f] = sums[f] >= 0.0f;
      return;
    case Family::dwta:
    case Family::wta:
      places.resize(padded);
      kernels_.largest(places.data(), x.data(), members_.data(), bin, functions_,
                       shape_.family == Family::wta);
      for (std::size_t f = 0; f < codes.size(); ++f) codes[f] = static_cast<std::uint32_t>(places[f]);
      return fill_empty(codes);
    case Family::minhash: {
      least.resize(padded);
      const std::span<std::int32_t> set = largest_positive(x, members);
      kernels_.least(least.data(), set.data(), std::ssize(set), priorities_.data(), functions_);
      std::copy_n(least.begin(), codes.size(), codes.begin());
      return;
    }
    case Family::random: std::fill(codes.begin(), codes.end(), 0u);
  }
}

/// Bins in which nothing counts take the code of another one (densification).
void HashFunctions::fill_empty(std::span<std::uint32_t> codes) const {
  constexpr std::uint32_t empty = bin;
  if (std::find(codes.begin(), codes.end(), empty) == codes.end()) return;
  thread_local std::vector<std::uint32_t> found;
  found.assign(codes.begin(), codes.end());
  for (std::size_t f = 0; f < codes.size(); ++f) {
    for (int attempt = 1; codes[f] == empty && attempt <= most_attempts; ++attempt)
      codes[f] = found[mixed(f, static_cast<std::uint64_t>(attempt)) % found.size()];
    if (codes[f] == empty) codes[f] = 0;
  }
}

std::uint32_t HashFunctions::key_of(std::span<const std::uint32_t> codes) const {
  const int bits = code_bits(shape_.family);
  if (bits * shape_.k <= shape_.key_bits) {
    std::uint32_t key = 0;
    for (const std::uint32_t code : codes) key = key << bits | code;
    return key;
  }
  std::uint64_t sum = 0;  // multiply-shift (Dietzfelbinger, STACS 1996)
  for (std::size_t i = 0; i < codes.size(); ++i) sum += multipliers_[i] * (std::uint64_t{codes[i]} + 1);
  return static_cast<std::uint32_t>(mixed(sum, 0) >> (64 - shape_.key_bits));
}

void HashFunctions::keys(std::span<const float> x, std::span<std::uint32_t> keys) const {
  thread_local std::vector<std::uint32_t> all;
  const auto k = static_cast<std::size_t>(shape_.k);
  all.resize(k * keys.size());
  codes(x, all);
  for (std::size_t l = 0; l < keys.size(); ++l) keys[l] = key_of(std::span(all).subspan(l * k, k));
}

}  // namespace slide
