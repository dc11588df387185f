// Counter-based random streams. A stream is a pure function of (seed, owner, step, lane): nothing about it
// needs saving, and any element can be drawn without the ones before it. The generator is Philox4x32-10
// (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 4.3).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("random.hpp");

namespace at {
class Tensor;
}

namespace trainyard {

/// One block of Philox4x32-10: four 32-bit words from a 128-bit counter and a 64-bit key.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

class RandomStream {
 public:
  /// `owner` names who draws ("sampler", "model/fc1.weight", "dropout/fc1"); `lane` tells apart the draws of
  /// one owner in one step (the micro-batch, say). step < 2^48, else std::out_of_range; block indices wrap at
  /// 2^48.
  RandomStream(std::uint64_t seed, std::string_view owner, std::uint64_t step = 0, std::uint32_t lane = 0);

  /// Returns the stream of another step or lane of the same owner, without hashing its name again.
  RandomStream at(std::uint64_t step, std::uint32_t lane = 0) const;

  /// Returns element `index` of the stream: 64 random bits. Elements 2k and 2k+1 come from block k.
  std::uint64_t bits(std::uint64_t index) const;
  /// Returns element `index` as a number in [0, 1) with 53 random bits.
  double uniform(std::uint64_t index) const;
  /// Returns element `index` as an integer in [0, bound), bound > 0: the high part of block `index`, 128
  /// bits, times the bound (Lemire, "Fast random integer generation in an interval", 2019); no value is
  /// favoured by more than 2^-64.
  std::uint64_t below(std::uint64_t index, std::uint64_t bound) const;

  /// Returns a seed for a generator of another library.
  std::uint64_t seed() const { return bits(0); }

  // These fill `out` from block `first_block` on, four elements a block, vectorized.
  /// Fills with raw 32-bit words.
  void fill_words(std::span<std::uint32_t> out, std::uint64_t first_block = 0) const;
  /// Fills with floats in [0, 1) with 24 random bits.
  void fill_uniform(std::span<float> out, std::uint64_t first_block = 0) const;
  /// Fills an inverted dropout mask: out[i] = 1/keep with probability keep (where fill_uniform gives less
  /// than keep), else 0. 0 < keep <= 1.
  void fill_mask(std::span<float> out, double keep, std::uint64_t first_block = 0) const;

 private:
  RandomStream(std::array<std::uint32_t, 2> key, std::uint64_t step, std::uint32_t lane);
  std::array<std::uint32_t, 4> block(std::uint64_t index) const;

  std::array<std::uint32_t, 2> key_;
  std::uint64_t step_;
  std::uint32_t lane_;
};

// In-place initialisers for a contiguous CPU tensor of float or double, the same bits on every machine; they
// throw PluginError for another tensor.
void fill_uniform(at::Tensor& tensor, const RandomStream& stream, double low, double high);
/// Uses the Box-Muller transform, from block `first_block` on, four elements a block.
void fill_normal(at::Tensor& tensor, const RandomStream& stream, double mean, double deviation,
                 std::uint64_t first_block = 0);

}  // namespace trainyard
