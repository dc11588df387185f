// What hash functions compute, against its definition, and to the bit on every instruction set.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/hash.hpp"
#include "tests/kernels/isas.hpp"

namespace hash_tests {

namespace {

using namespace trainyard::kernels;
using Random = std::mt19937_64;

/// Functions of every kind over vectors of one width.
struct Functions {
  std::int64_t width, count;
  std::vector<float> signs;
  std::vector<std::int32_t> members;
  std::vector<std::uint32_t> priorities;

  static constexpr std::int64_t bin = 8;

  Functions(std::int64_t width_given, std::int64_t count_given, Random& random)
      : width(width_given), count(count_given) {
    for (std::int64_t i = 0; i < width * count; ++i) {
      signs.push_back(static_cast<float>(static_cast<int>(random() % 3) - 1));
      priorities.push_back(static_cast<std::uint32_t>(random()));
    }
    for (std::int64_t i = 0; i < bin * count; ++i)
      members.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(width)));
  }
};

struct Found {
  std::vector<float> sums;
  std::vector<std::int32_t> with_zeros, without;
  std::vector<std::uint32_t> least;

  bool operator==(const Found&) const = default;
};

Found computed(Isa isa, const Functions& f, const std::vector<float>& x,
               const std::vector<std::int32_t>& set) {
  const auto count = static_cast<std::size_t>(f.count);
  Found found{std::vector<float>(count), std::vector<std::int32_t>(count), std::vector<std::int32_t>(count),
              std::vector<std::uint32_t>(count)};
  const HashKernels& kernels = hash_kernels(isa);
  kernels.project(found.sums.data(), x.data(), f.width, f.signs.data(), f.count);
  kernels.largest(found.with_zeros.data(), x.data(), f.members.data(), Functions::bin, f.count, true);
  kernels.largest(found.without.data(), x.data(), f.members.data(), Functions::bin, f.count, false);
  kernels.least(found.least.data(), set.data(), std::ssize(set), f.priorities.data(), f.count);
  return found;
}

/// By the definitions, one function at a time.
Found expected(const Functions& f, const std::vector<float>& x, const std::vector<std::int32_t>& set) {
  Found found;
  const auto count = static_cast<std::size_t>(f.count);
  for (std::size_t j = 0; j < count; ++j) {
    float sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * f.signs[i * count + j];
    found.sums.push_back(sum);
    for (const bool zeros : {true, false}) {
      std::int32_t best = Functions::bin;
      float most = 0;
      for (std::int32_t m = 0; m < Functions::bin; ++m) {
        const float value = x[static_cast<std::size_t>(f.members[static_cast<std::size_t>(m) * count + j])];
        if (std::isnan(value) || (value == 0 && !zeros) || (best < Functions::bin && value <= most)) continue;
        best = m;
        most = value;
      }
      (zeros ? found.with_zeros : found.without).push_back(best);
    }
    std::uint32_t least = std::numeric_limits<std::uint32_t>::max();
    for (const std::int32_t i : set)
      least = std::min(least, f.priorities[static_cast<std::size_t>(i) * count + j]);
    found.least.push_back(least);
  }
  return found;
}

}  // namespace

TEST_CASE("hash: every instruction set gives what the definitions say, to the bit") {
  Random random(11);
  std::normal_distribution<float> normal;
  for (const std::int64_t width : {8, 64, 100, 127, 129, 512})
    for (const std::int64_t count : {16, 48, 160}) {
      const Functions functions(width, count, random);
      for (int vector = 0; vector < 20; ++vector) {
        std::vector<float> x(static_cast<std::size_t>(width));
        std::vector<std::int32_t> set;
        for (std::size_t i = 0; i < x.size(); ++i) {
          x[i] = random() % 3 == 0 ? 0.0f : std::round(normal(random) * 4) / 4;  // with ties and zeros
          if (x[i] > 0) set.push_back(static_cast<std::int32_t>(i));
        }
        if (vector == 1) x.assign(x.size(), 0.0f);
        if (vector == 2) x[3] = std::numeric_limits<float>::quiet_NaN();
        const Found of_definitions = expected(functions, x, set);
        for (const Isa isa : isas()) {
          const Found found = computed(isa, functions, x, set);
          INFO("width " << width << ", " << count << " functions, set " << static_cast<int>(isa));
          CHECK(found.with_zeros == of_definitions.with_zeros);
          CHECK(found.without == of_definitions.without);
          CHECK(found.least == of_definitions.least);
          if (vector != 2) CHECK(found.sums == of_definitions.sums);
        }
      }
    }
}

TEST_CASE("hash: a million vectors have the same signs, places and minima on every instruction set") {
  Random random(13);
  const Functions functions(32, 32, random);
  std::int64_t different = 0;
  std::vector<float> x(32);
  for (int vector = 0; vector < 1'000'000; ++vector) {
    std::vector<std::int32_t> set;
    for (std::size_t i = 0; i < x.size(); i += 2) {
      const std::uint64_t bits = random();
      x[i] = static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-24f;
      x[i + 1] = static_cast<float>(static_cast<std::int32_t>(bits >> 32)) * 0x1p-30f;
    }
    for (std::int32_t i = 0; i < 32; ++i)
      if (x[static_cast<std::size_t>(i)] > 0) set.push_back(i);
    const Found portable = computed(Isa::portable, functions, x, set);
    for (const Isa isa : isas()) different += !(computed(isa, functions, x, set) == portable);
  }
  CHECK(different == 0);
}

}  // namespace hash_tests
