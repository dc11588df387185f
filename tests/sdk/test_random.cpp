#include <array>
#include <cmath>
#include <numeric>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/random.hpp>

namespace test_random_tests {

using trainyard::RandomStream;

TEST_CASE("philox gives the known answers of Random123", "[random]") {
  using Words = std::array<std::uint32_t, 4>;
  // Lines "philox4x32 10" of kat_vectors in the Random123 distribution.
  CHECK(trainyard::philox({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(trainyard::philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(trainyard::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("bulk fills equal the stream drawn element by element", "[random]") {
  const RandomStream stream = RandomStream(7, "test").at(3, 2);
  // Around the place where the low counter word wraps, and away from it; sizes that leave a rest.
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{5}, (std::uint64_t{1} << 32) - 9})
    for (const std::size_t size : {1, 3, 64, 67, 1000}) {
      std::vector<std::uint32_t> words(size);
      std::vector<float> uniform(size), mask(size);
      stream.fill_words(words, first);
      stream.fill_uniform(uniform, first);
      stream.fill_mask(mask, 0.75, first);
      for (std::size_t i = 0; i < size; ++i) {
        const std::uint64_t bits = stream.bits(2 * first + i / 2);
        const auto word = static_cast<std::uint32_t>(i % 2 == 0 ? bits : bits >> 32);
        REQUIRE(words[i] == word);
        REQUIRE(uniform[i] == static_cast<float>(word >> 8) / 16777216.0f);
        REQUIRE(mask[i] == (uniform[i] < 0.75f ? 1.0f / 0.75f : 0.0f));
      }
    }
}

TEST_CASE("a tensor that is not in one piece, or no tensor of floats, is not filled", "[random]") {
  const RandomStream stream(1, "test");
  at::Tensor turned = at::zeros({4, 3}).t(), whole = at::zeros({4}, at::kLong);
  CHECK_THROWS_WITH(fill_uniform(turned, stream, 0.0, 1.0), Catch::Contains("not contiguous"));
  CHECK_THROWS_WITH(fill_uniform(whole, stream, 0.0, 1.0), Catch::Contains("holds Long"));
}

TEST_CASE("seed, owner, step and lane each give another stream", "[random]") {
  std::vector<std::uint64_t> first;
  for (const std::uint64_t seed : {0, 1})
    for (const char* owner : {"", "a", "b"})
      for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 33})
        for (const std::uint32_t lane : {0u, 1u})
          first.push_back(RandomStream(seed, owner, step, lane).bits(0));
  std::ranges::sort(first);
  CHECK(std::ranges::adjacent_find(first) == first.end());
  CHECK(RandomStream(5, "x", 9, 1).bits(11) == RandomStream(5, "x").at(9, 1).bits(11));
  CHECK_THROWS_AS(RandomStream(5, "x", std::uint64_t{1} << 48), std::out_of_range);
}

TEST_CASE("numbers below a bound are uniform", "[random]") {
  const RandomStream stream(1, "below");
  std::vector<int> counts(7);
  for (std::uint64_t i = 0; i < 70000; ++i) ++counts.at(stream.below(i, 7));
  double chi = 0.0;
  for (const int count : counts) chi += std::pow(count - 10000.0, 2) / 10000.0;
  CHECK(chi < 22.5);  // 0.1 % of the chi-squared distribution with 6 degrees of freedom
  CHECK(stream.below(3, 1) == 0);
  CHECK(stream.below(3, ~std::uint64_t{0}) < ~std::uint64_t{0});
}

TEST_CASE("a number below a bound is all 128 bits of its block, times the bound, over 2^128", "[random]") {
  const RandomStream stream(1, "below");
  for (std::uint64_t i = 0; i < 50; ++i) {
    std::array<std::uint32_t, 4> words;
    stream.fill_words(words, i);
    const std::uint64_t bound = ~std::uint64_t{0} - 12345 * i;
    // By hand, in digits of 32 bits: the block's are in the order of high and low halves.
    const std::uint64_t digits[4] = {words[2], words[3], words[0], words[1]};
    std::uint64_t product[6] = {};
    for (int place = 0; place < 2; ++place) {
      const std::uint64_t factor = place == 0 ? bound & 0xffffffff : bound >> 32;
      std::uint64_t carry = 0;
      for (int d = 0; d < 4; ++d) {
        const std::uint64_t sum = digits[d] * factor + product[d + place] + carry;
        product[d + place] = sum & 0xffffffff;
        carry = sum >> 32;
      }
      product[4 + place] += carry;
    }
    CHECK(stream.below(i, bound) == (product[4] | product[5] << 32));
  }
}

TEST_CASE("a mask keeps its share", "[random]") {
  std::vector<float> mask(1 << 20);
  for (const double keep : {0.1, 0.5, 0.9}) {
    RandomStream(3, "mask").fill_mask(mask, keep);
    const double kept =
        std::accumulate(mask.begin(), mask.end(), 0.0) * keep / static_cast<double>(mask.size());
    CHECK(std::abs(kept - keep) < 5 * std::sqrt(keep * (1 - keep) / static_cast<double>(mask.size())));
  }
  RandomStream(3, "mask").fill_mask(mask, 1.0);
  CHECK(std::ranges::count(mask, 1.0f) == static_cast<std::ptrdiff_t>(mask.size()));
}

TEST_CASE("normal numbers from a block on are those of the stream there", "[random]") {
  const trainyard::RandomStream stream(7, "noise");
  at::Tensor whole = at::empty({5000}, at::kDouble), rest = at::empty({4988}, at::kDouble);
  trainyard::fill_normal(whole, stream, 1.0, 2.0);
  trainyard::fill_normal(rest, stream, 1.0, 2.0, 3);
  CHECK(at::equal(whole.slice(0, 12), rest));
}

TEST_CASE("tensor fills have their moments and the C library's values", "[random]") {
  const RandomStream stream(11, "fill");
  at::Tensor normal = at::empty({1 << 20}, at::kDouble);
  trainyard::fill_normal(normal, stream, 2.0, 3.0);
  const at::Tensor z = (normal - 2.0) / 3.0;
  CHECK(std::abs(z.mean().item<double>()) < 0.005);
  CHECK(std::abs(z.square().mean().item<double>() - 1.0) < 0.007);
  CHECK(std::abs(z.pow(4).mean().item<double>() - 3.0) < 0.05);
  std::vector<std::uint32_t> words(1000);
  stream.fill_words(words);
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const double radius = std::sqrt(-2.0 * std::log((words[i] + 1.0) / 4294967296.0));
    const double angle = 2.0 * M_PI * words[i + 1] / 4294967296.0;
    const auto at = static_cast<std::int64_t>(i);
    CHECK(z[at].item<double>() == Approx(radius * std::cos(angle)).margin(1e-10));
    CHECK(z[at + 1].item<double>() == Approx(radius * std::sin(angle)).margin(1e-10));
  }

  at::Tensor uniform = at::empty({99999});
  trainyard::fill_uniform(uniform, stream, -0.5, 1.5);
  CHECK(uniform.min().item<float>() >= -0.5f);
  CHECK(uniform.max().item<float>() < 1.5f);
  CHECK(std::abs(uniform.mean().item<double>() - 0.5) < 0.01);

  at::Tensor integers = at::empty({4}, at::kLong);
  CHECK_THROWS_AS(trainyard::fill_uniform(integers, stream, 0, 1), trainyard::PluginError);
}

}  // namespace test_random_tests
