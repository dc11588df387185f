// Families of locality-sensitive hash functions: vectors that are alike are likely to have the same key.
//   simhash  the sign of a sum of a third of the coordinates, each with a random sign (Charikar, STOC 2002):
//            P[equal] = 1 - angle / pi but for the sparseness. A code is a bit
//   wta      of 8 coordinates at random, which one is largest (Yagnik et al., ICCV 2011). 3 bits
//   dwta     the same over coordinates that are not zero, where the bins of 8 share out the coordinates of a
//            permutation; an empty bin takes the code of another (Chen and Shrivastava, UAI 2018). 3 bits
//   minhash  of the at most 30 largest positive coordinates, the least of random numbers that belong to them
//            (Broder, 1997): P[equal] = Jaccard similarity of the sets of coordinates. 32 bits
// A key is of K codes, one behind the other, or mixed where it shall have fewer bits.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <trainyard/manifest.hpp>
#include <trainyard/random.hpp>

#include "kernels/cpu/hash.hpp"

namespace slide {

namespace kernels = trainyard::kernels;

/// `random` has no functions: nothing is looked up.
enum class Family : std::uint8_t { simhash, dwta, wta, minhash, random };

struct HashShape {
  Family family = Family::simhash;
  std::int64_t width = 0;  ///< of a vector; at least 8 for wta and dwta
  int k = 9, l = 50;       ///< codes of a key, keys of a vector
  int key_bits = 9;        ///< at most 24; fewer than the codes have: they are mixed

  std::int64_t buckets() const { return std::int64_t{1} << key_bits; }
};

int code_bits(Family family);

/// The functions of one draw. Safe on several threads.
class HashFunctions {
 public:
  /// `draw` numbers the draws from `random`.
  HashFunctions(const HashShape& shape, const trainyard::RandomStream& random, std::uint64_t draw,
                kernels::Isa isa = kernels::fastest_isa());

  /// The L keys of a vector, each in [0, buckets).
  void keys(std::span<const float> x, std::span<std::uint32_t> keys) const;

  /// The K L codes behind them.
  void codes(std::span<const float> x, std::span<std::uint32_t> codes) const;

  /// The key of K codes.
  std::uint32_t key_of(std::span<const std::uint32_t> codes) const;

 private:
  void draw_signs(const trainyard::RandomStream& random, std::uint64_t draw);
  void draw_bins(const trainyard::RandomStream& random, std::uint64_t draw);
  void draw_shared_bins(const trainyard::RandomStream& random, std::uint64_t draw);
  void fill_empty(std::span<std::uint32_t> codes) const;

  HashShape shape_;
  const kernels::HashKernels& kernels_;
  std::int64_t functions_ = 0;              ///< codes, and some up to whole registers
  std::vector<float> signs_;                ///< simhash: [width][functions]
  std::vector<std::int32_t> members_;       ///< wta, dwta: [8][functions]
  std::vector<std::uint32_t> priorities_;   ///< minhash: [width][functions]
  std::vector<std::uint64_t> multipliers_;  ///< [K], odd
};

}  // namespace slide

template <>
struct trainyard::Words<slide::Family> {
  static constexpr std::string_view words[] = {"simhash", "dwta", "wta", "minhash", "random"};
};
