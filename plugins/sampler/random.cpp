// Every sample once an epoch, in a pseudo-random order that is computed position by position: a Feistel
// network keyed by the epoch permutes [0, 2^bits), and cycle walking restricts it to [0, size) (Black and
// Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002, sections 4 and 5). Nothing is stored and
// nothing shuffled.
#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include <trainyard/sampler.hpp>

namespace {

constexpr int rounds = 6;

class Permutation {
 public:
  /// Of [0, 2^bits), drawn from `random`.
  Permutation(const trainyard::RandomStream& random, int bits)
      : low_bits_(bits / 2),
        low_mask_((1ull << low_bits_) - 1),
        high_mask_((1ull << (bits - low_bits_)) - 1) {
    for (int round = 0; round < rounds; ++round) keys_[round] = random.bits(round);
  }

  std::uint64_t operator()(std::uint64_t value) const {
    std::uint64_t low = value & low_mask_;
    std::uint64_t high = value >> low_bits_;
    for (int round = 0; round < rounds; round += 2) {
      high ^= mix(low ^ keys_[round]) & high_mask_;
      low ^= mix(high ^ keys_[round + 1]) & low_mask_;
    }
    return high << low_bits_ | low;
  }

 private:
  /// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014, section 3).
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
  }

  int low_bits_;
  std::uint64_t low_mask_, high_mask_;
  std::array<std::uint64_t, rounds> keys_;
};

class Random final : public trainyard::Sampler {
 public:
  struct Options {};
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("random").version("1.0.0").summary(
        "Every sample once an epoch, in another random order each epoch.");
  }
  explicit Random(const Options&) {}

  void open(const Source& source) override {
    size_ = source.size;
    random_ = source.random;
    // A tiny domain would reach only some of the orders; a larger one costs a few more walks.
    bits_ = std::max(8, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size_ - 1))));
  }
  std::int64_t size() const override { return size_; }
  void order(std::int64_t epoch, std::int64_t first, std::span<std::int64_t> out) const override {
    const Permutation permutation(random_->at(static_cast<std::uint64_t>(epoch)), bits_);
    const auto size = static_cast<std::uint64_t>(size_);
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::uint64_t value = static_cast<std::uint64_t>(first) + i;
      do value = permutation(value);
      while (value >= size);
      out[i] = static_cast<std::int64_t>(value);
    }
  }

 private:
  std::int64_t size_ = 0;
  int bits_ = 0;
  std::optional<trainyard::RandomStream> random_;
};

}  // namespace

TRAINYARD_PLUGIN(Random)
