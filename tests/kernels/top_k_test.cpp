// The selection of a gradient's largest elements against a full sort, and MSTopK against its definition.
#include <catch2/catch.hpp>

#include <cstring>
#include <stdexcept>

#include "kernels/cpu/top_k.hpp"
#include "kernels/top_k_oracle.hpp"
#include "tests/kernels/isas.hpp"

namespace top_k_tests {

namespace {

using namespace trainyard::kernels;
using namespace trainyard::test;

constexpr Method exact_methods[] = {Method::bitsearch, Method::radix, Method::exact};

struct Found {
  Indices indices;
  Floats values;
  Selected selected;

  bool operator==(const Found& other) const {
    return indices == other.indices && selected.k1 == other.selected.k1 && selected.k2 == other.selected.k2 &&
           std::memcmp(&selected.t1, &other.selected.t1, 2 * sizeof(float)) == 0 &&
           selected.passes == other.selected.passes;
  }
};

Found select(TopK& top_k, const Floats& x, std::int64_t k, const Selection& how, std::uint64_t random = 0) {
  // What is not written shows.
  Found found{Indices(static_cast<std::size_t>(k), -1), Floats(static_cast<std::size_t>(k), -7.5f), {}};
  found.selected = top_k.select(x, how, random, found.indices, found.values);
  return found;
}

float at(const Floats& x, std::int32_t index) {
  return x[static_cast<std::size_t>(index)];
}

std::int64_t count_from(const Floats& x, float t) {
  return std::ranges::count_if(x, [&](float each) { return magnitude(each) >= t; });
}

/// What holds for every method.
void check_selection(const Floats& x, std::int64_t k, const Found& found) {
  const auto d = static_cast<std::int32_t>(x.size());
  bool valid = std::ssize(found.indices) == k;
  for (std::size_t j = 0; j < found.indices.size(); ++j) {
    const std::int32_t index = found.indices[j];
    valid &= index > (j == 0 ? -1 : found.indices[j - 1]) && index < d;
    if (valid)
      valid &= std::memcmp(&found.values[j], &x[static_cast<std::size_t>(index)], sizeof(float)) == 0;
  }
  if (!valid) FAIL_CHECK("indices are not k ascending ones of the tensor, with its values");
  const Selected& s = found.selected;
  const auto non_finite = std::ranges::count_if(x, [](float each) { return !std::isfinite(each); });
  bool told = s.non_finite == non_finite && s.k1 <= k && s.k2 >= k && count_from(x, s.t2) == s.k2;
  if (non_finite <= k) told &= count_from(x, s.t1) == s.k1;
  if (valid)
    for (const std::int32_t index : found.indices) told &= magnitude(at(x, index)) >= s.t2;
  if (!told)
    FAIL_CHECK("k1 " << s.k1 << " at " << s.t1 << ", k2 " << s.k2 << " at " << s.t2 << ", not finite "
                     << s.non_finite << " of " << non_finite);
}

/// All that is sure, and of the band a stretch.
void check_mstopk(const MsTopK& expected, std::int64_t k, const Found& found, std::uint64_t random) {
  const std::int64_t take = k - expected.k1, places = std::ssize(expected.band) - take + 1;
  CHECK(found.selected.k1 == expected.k1);
  CHECK(found.selected.k2 == expected.k2);
  REQUIRE(places >= 1);
  const auto begin =
      expected.band.begin() + static_cast<std::int64_t>(random % static_cast<std::uint64_t>(places));
  Indices all = expected.sure;
  all.insert(all.end(), begin, begin + take);
  std::ranges::sort(all);
  CHECK(found.indices == all);
}

/// The part of the largest k that was found, and of their squares.
struct Quality {
  double recall, energy;
};

Quality quality(const Floats& x, const Found& found, const Indices& exact) {
  Indices both;
  std::ranges::set_intersection(found.indices, exact, std::back_inserter(both));
  const auto squares = [&](const Indices& indices) {
    double sum = 0;
    for (const std::int32_t index : indices) sum += double{at(x, index)} * at(x, index);
    return sum;
  };
  return {static_cast<double>(both.size()) / static_cast<double>(exact.size()),
          squares(found.indices) / squares(exact)};
}

Floats drawn(std::size_t count, auto&& distribution) {
  Random random(5);
  Floats x(count);
  for (float& each : x) each = static_cast<float>(distribution(random));
  return x;
}

Floats laplace(std::size_t count) {
  return drawn(count, [](Random& random) {
    const double magnitude = std::exponential_distribution<double>()(random);
    return random() % 2 == 0 ? magnitude : -magnitude;
  });
}

}  // namespace

TEST_CASE("top-k: exactly k indices of 10,000 tensors, by each method and instruction set") {
  Random random(1);
  std::vector<TopK> top_k;
  for (const Isa isa : isas()) top_k.emplace_back(isa);
  for (int i = 0; i < 10'000; ++i) {
    const Floats x = adversarial(random, i % 50 == 0 ? 10'000 : 300);
    const std::int64_t k = some_k(random, x.size());
    const std::uint64_t place = random();
    const int samples = static_cast<int>(1 + random() % 35);
    const Start start = random() % 2 == 0 ? Start::mean : Start::minimum;
    CAPTURE(i, x.size(), k, samples, static_cast<int>(start));
    const Indices expected = first_of(ranking(x), k);
    const MsTopK published = published_mstopk(x, k, samples, start);
    std::vector<Found> of_first;
    for (std::size_t isa = 0; isa < top_k.size(); ++isa) {
      std::vector<Found> all;
      for (const Method method : exact_methods) {
        all.push_back(select(top_k[isa], x, k, {.method = method, .levels = 1 + i % 4}));
        check_selection(x, k, all.back());
        if (all.back().indices != expected)
          FAIL_CHECK("not the k largest: method " << static_cast<int>(method));
      }
      all.push_back(
          select(top_k[isa], x, k,
                 {.method = Method::mstopk, .samples = samples, .start = start, .levels = 1 + i % 4}, place));
      check_selection(x, k, all.back());
      if (k > 0 && k < std::ssize(x)) check_mstopk(published, k, all.back(), place);
      if (isa == 0) of_first = all;
      if (all != of_first) FAIL_CHECK("other instructions, another result: " << isa);
    }
  }
}

TEST_CASE("top-k: several thresholds a pass give what one gives, in fewer passes") {
  Random random(2);
  TopK top_k;
  int fewer = 0;
  for (int i = 0; i < 300; ++i) {
    const Floats x = adversarial(random, 3000);
    const std::int64_t k = some_k(random, x.size());
    for (const Method method : {Method::mstopk, Method::bitsearch}) {
      Selection how{.method = method, .samples = static_cast<int>(1 + random() % 40), .levels = 1};
      const Found single = select(top_k, x, k, how, 77);
      for (const int levels : {2, 3, 4}) {
        how.levels = levels;
        Found several = select(top_k, x, k, how, 77);
        const int steps = single.selected.passes - 1 - (k > 0);
        CHECK(several.selected.passes == 1 + (k > 0) + (steps + levels - 1) / levels);
        fewer += several.selected.passes < single.selected.passes;
        several.selected.passes = single.selected.passes;
        CHECK(several == single);
      }
    }
  }
  CHECK(fewer > 500);
}

TEST_CASE("top-k: of large tensors, where a sample comes first, the same") {
  constexpr std::size_t count = 700'001;
  const Floats ascending = drawn(count, [i = 0](Random&) mutable { return ++i; });
  const Floats periodic =
      drawn(count, [i = 0](Random&) mutable { return ++i % 64 == 0 ? 1.0 + i * 1e-6 : 0.1; });
  const Floats ties = drawn(count, [](Random& random) { return static_cast<double>(random() % 3); });
  // Where a sample finds no more than a few of the largest.
  const Floats together =
      drawn(count, [i = 0](Random&) mutable { return ++i < 400 ? 1e3 - i : 1e-3 * (i % 1000); });
  Floats spoilt = drawn(count, std::normal_distribution<double>());
  for (std::size_t i = 0; i < 900; ++i) spoilt[i * 701] = i % 2 == 0 ? -INFINITY : NAN;
  // Large where the sample looks, so that its bound is above the k-th: the largest 1000 end a bin. Or so that
  // the bound leaves 1000, and lies within a bin.
  Floats misleading(count, 0.1f), within_bin(count, 1.01f);
  std::fill_n(misleading.begin(), 800, 32.0f);
  std::fill_n(within_bin.begin(), 800, 1.1f);
  for (std::uint32_t i = 500; i < 700; ++i) {
    const auto place = static_cast<std::size_t>((i + i * 0x9e3779b9u * 0x1p-32) * (count * 0x1p-15));
    misleading[place] = 1024;
    within_bin[place] = 1.1f;
  }
  std::vector<TopK> top_k;
  for (const Isa isa : isas()) top_k.emplace_back(isa);
  for (const Floats& x : {misleading, within_bin, drawn(count, std::normal_distribution<double>()), ascending,
                          periodic, ties, together, spoilt, Floats(count, -2.5f)}) {
    const Indices ranked = ranking(x);
    for (const std::int64_t k : {1, 70, 700, 900, 1'000, 7'000, 70'000, 350'000, 700'000}) {
      CAPTURE(k);
      const Indices expected = first_of(ranked, k);
      for (TopK& each : top_k) {
        const Found found = select(each, x, k, {.method = Method::radix});
        check_selection(x, k, found);
        CHECK((found.indices == expected));
      }
      for (const Method method : {Method::bitsearch, Method::exact})
        CHECK((select(top_k.back(), x, k, {.method = method}).indices == expected));
    }
  }
}

TEST_CASE("top-k: a selector keeps nothing of the tensor before") {
  Random random(3);
  TopK used;
  const Floats large = drawn(600'000, std::normal_distribution<double>());
  for (int i = 0; i < 50; ++i) {
    select(used, large, 100, {.method = i % 2 == 0 ? Method::radix : Method::exact});
    const Floats x = adversarial(random, 5000);
    const std::int64_t k = some_k(random, x.size());
    for (const Method method : {Method::mstopk, Method::bitsearch, Method::radix, Method::exact}) {
      TopK fresh;
      CHECK(select(used, x, k, {.method = method}, 5) == select(fresh, x, k, {.method = method}, 5));
    }
  }
}

TEST_CASE("top-k: recall and energy of MSTopK") {
  constexpr std::size_t d = 1'000'000;
  const Floats normal = drawn(d, std::normal_distribution<double>());
  const Floats student = drawn(d, std::student_t_distribution<double>(3));
  TopK top_k;
  const auto of = [&](const Floats& x, std::int64_t k, int samples, Start start = Start::mean) {
    const Found exact = select(top_k, x, k, {.method = Method::radix});
    return quality(
        x, select(top_k, x, k, {.method = Method::mstopk, .samples = samples, .start = start}, 123'456'789),
        exact.indices);
  };
  SECTION("the published number of samples finds all") {
    CHECK(of(normal, 10'000, 30).recall >= 0.999);
    CHECK(of(laplace(d), 1'000, 30).recall >= 0.999);
    CHECK(of(student, 10'000, 30).recall >= 0.999);
  }
  SECTION("fewer find less, of heavy tails least") {
    for (const Floats* x : {&normal, &student}) {
      const double five = of(*x, 10'000, 5).recall, ten = of(*x, 10'000, 10).recall;
      CHECK(five < ten);
      CHECK(five < 0.99);
      CHECK(ten < 1);
      CHECK(ten > 0.95);
      const Found found = select(top_k, *x, 10'000, {.method = Method::mstopk, .samples = 5}, 99);
      check_mstopk(published_mstopk(*x, 10'000, 5, Start::mean), 10'000, found, 99);
    }
  }
  SECTION("beyond what lies above the mean it begins too high") {
    CHECK(of(normal, 500'000, 30).recall == Approx(0.871).margin(0.01));
    CHECK(of(normal, 500'000, 30, Start::minimum).recall >= 0.999);
  }
  SECTION("an outlier hides the rest from it, and not from the exact methods") {
    Floats x = normal;
    x[d / 3] = 1e8f;
    for (const int samples : {15, 30, 45}) CHECK(of(x, 10'000, samples).recall <= 0.02);
    x[d / 3] = 1e6f;
    CHECK(of(x, 10'000, 15).recall <= 0.02);
    CHECK(of(x, 10'000, 30).recall >= 0.999);
    x[d / 3] = 1e8f;
    const Indices exact = first_of(ranking(x), 10'000);
    for (const Method method : exact_methods)
      CHECK((select(top_k, x, 10'000, {.method = method}).indices == exact));
  }
}

TEST_CASE("top-k: error feedback: what is sent and what stays is all there was") {
  Random random(4);
  TopK top_k;
  for (int i = 0; i < 100; ++i) {
    const Floats x = adversarial(random, 500);
    const Found found = select(top_k, x, some_k(random, x.size()), {});
    Floats rest = x, sum(x.size(), 0.0f);
    zero_at(found.indices, rest);
    CHECK(std::ranges::all_of(found.indices, [&](std::int32_t index) { return at(rest, index) == 0; }));
    scatter_add(found.values, found.indices, sum);
    bool same = true;
    for (std::size_t j = 0; j < x.size(); ++j) {
      const float both = sum[j] + rest[j];
      same &= both == x[j] || (std::isnan(both) && std::isnan(x[j]));
    }
    CHECK(same);
  }
  Floats twice(3, 1.0f);
  scatter_add(Floats{1, 2, 4}, Indices{1, 1, 2}, twice);
  CHECK(twice == Floats{1, 4, 5});
}

TEST_CASE("top-k: what is not as described is refused, and nothing written") {
  TopK top_k;
  const Floats x(10, 1.0f);
  Indices indices(11, -1);
  Floats values(11);
  const auto of = [](auto& all, std::size_t count) { return std::span(all).first(count); };
  using std::invalid_argument;
  CHECK_THROWS_AS(top_k.select(x, {}, 0, indices, values), invalid_argument);
  CHECK_THROWS_AS(top_k.select(x, {}, 0, of(indices, 3), of(values, 2)), invalid_argument);
  CHECK_THROWS_AS(top_k.select(x, {.levels = 0}, 0, of(indices, 3), of(values, 3)), invalid_argument);
  CHECK_THROWS_AS(top_k.select(x, {.levels = 5}, 0, of(indices, 3), of(values, 3)), invalid_argument);
  CHECK_THROWS_AS(top_k.select(x, {.samples = 0}, 0, of(indices, 3), of(values, 3)), invalid_argument);
  CHECK(indices == Indices(11, -1));
  Floats into(4, 1.0f);
  CHECK_THROWS_AS(scatter_add(Floats{1, 1}, Indices{0, 4}, into), invalid_argument);
  CHECK_THROWS_AS(scatter_add(Floats{1, 1}, Indices{0, -1}, into), invalid_argument);
  CHECK_THROWS_AS(scatter_add(Floats{1}, Indices{0, 1}, into), invalid_argument);
  CHECK_THROWS_AS(zero_at(Indices{0, 4}, into), invalid_argument);
  CHECK(into == Floats(4, 1.0f));
}

}  // namespace top_k_tests
