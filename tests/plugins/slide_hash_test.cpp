// Hash functions, tables and active sets of the model slide against their probabilities.
#include <catch2/catch.hpp>

#include <cmath>
#include <random>
#include <set>
#include <vector>

#include <ATen/ATen.h>

#include "plugins/model/slide/active_set.hpp"

namespace slide_hash_tests {

using namespace trainyard;
using namespace slide;

namespace {

using Random = std::mt19937_64;
using Floats = std::vector<float>;

const RandomStream stream(17, "test");

Floats normal(std::size_t count, Random& random) {
  std::normal_distribution<float> draw;
  Floats values(count);
  for (float& each : values) each = draw(random);
  return values;
}

double product(const Floats& a, const Floats& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// Two vectors with this cosine, to rounding.
std::pair<Floats, Floats> pair_of_cosine(double cosine, std::size_t width, Random& random) {
  Floats a = normal(width, random), b = normal(width, random);
  const double along = product(a, b) / product(a, a);
  for (std::size_t i = 0; i < width; ++i) b[i] -= static_cast<float>(along) * a[i];
  const double scale = std::sqrt(product(a, a) / product(b, b)), sine = std::sqrt(1 - cosine * cosine);
  for (std::size_t i = 0; i < width; ++i)
    b[i] = static_cast<float>(cosine) * a[i] + static_cast<float>(sine * scale) * b[i];
  return {a, b};
}

/// Coordinates of the two have this correlation.
std::pair<Floats, Floats> correlated(double correlation, std::size_t width, Random& random) {
  Floats a = normal(width, random), b = normal(width, random);
  for (std::size_t i = 0; i < width; ++i)
    b[i] = static_cast<float>(correlation) * a[i] +
           static_cast<float>(std::sqrt(1 - correlation * correlation)) * b[i];
  return {a, b};
}

/// The share of equal codes of pairs, each with functions of its own.
template <class Draw>
double equal_codes(const HashShape& shape, int pairs, const Draw& draw) {
  std::vector<std::uint32_t> of_a(static_cast<std::size_t>(shape.k * shape.l)), of_b(of_a.size());
  std::size_t equal = 0;
  for (int pair = 0; pair < pairs; ++pair) {
    const HashFunctions functions(shape, stream, static_cast<std::uint64_t>(pair));
    const auto [a, b] = draw();
    functions.codes(a, of_a);
    functions.codes(b, of_b);
    for (std::size_t i = 0; i < of_a.size(); ++i) equal += of_a[i] == of_b[i];
  }
  return static_cast<double>(equal) / static_cast<double>(pairs) / static_cast<double>(of_a.size());
}

double deviation(double p, double draws) {
  return std::sqrt(p * (1 - p) / draws);
}

}  // namespace

TEST_CASE("slide: simhash collides with a probability of 1 - angle / pi") {
  Random random(1);
  const HashShape shape{.family = Family::simhash, .width = 1024, .k = 9, .l = 50, .key_bits = 9};
  const std::pair<double, double> expected[] = {{0.0, 0.5},      {0.3, 0.596987}, {0.5, 0.666667},
                                                {0.7, 0.746817}, {0.9, 0.856434}, {0.99, 0.954947}};
  for (const auto& [cosine, p] : expected) {
    INFO("cosine " << cosine);
    const double found = equal_codes(shape, 100, [&, c = cosine] { return pair_of_cosine(c, 1024, random); });
    CHECK(std::abs(found - p) < 3 * deviation(p, 100 * 450));
  }
}

TEST_CASE("slide: wta and dwta collide as often as the order of Gaussian pairs says") {
  Random random(2);
  const std::pair<double, double> expected[] = {{0.0, 0.125}, {0.3, 0.230}, {0.5, 0.326},
                                                {0.7, 0.458}, {0.9, 0.669}, {0.95, 0.759}};
  for (const Family family : {Family::wta, Family::dwta}) {
    const HashShape shape{.family = family, .width = 512, .k = 4, .l = 16, .key_bits = 12};
    for (const auto& [correlation, p] : expected) {
      INFO("correlation " << correlation);
      const double found =
          equal_codes(shape, 400, [&, c = correlation] { return correlated(c, 512, random); });
      CHECK(std::abs(found - p) < 0.002 + 3 * deviation(p, 400 * 64));  // the values are known to 0.002
    }
  }
}

TEST_CASE("slide: minhash collides with the Jaccard similarity") {
  Random random(3);
  const HashShape shape{.family = Family::minhash, .width = 128, .k = 2, .l = 32, .key_bits = 16};
  for (const int shared : {0, 4, 10, 16, 20}) {
    INFO(shared << " shared coordinates of 20");
    const double p = shared / (40.0 - shared);
    const double found = equal_codes(shape, 400, [&] {
      Floats a(128, 0.0f), b(128, -1.0f);
      for (int i = 0; i < 20; ++i) {
        a[static_cast<std::size_t>(i)] = 1.0f + static_cast<float>(i);
        b[static_cast<std::size_t>(i + 20 - shared)] = 2.0f;
      }
      return std::pair(a, b);
    });
    CHECK(std::abs(found - p) <= 3 * deviation(p, 400 * 64));
  }
}

TEST_CASE("slide: of a set of more than thirty, minhash sees the thirty largest") {
  const HashShape shape{.family = Family::minhash, .width = 64, .k = 2, .l = 32, .key_bits = 16};
  const HashFunctions functions(shape, stream, 0);
  Floats a(64), b(64, 0.0f);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 37 % 64 + 1);
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] > 34.0f) b[i] = 1.0f;  // 30 of them, in another order
  std::vector<std::uint32_t> of_a(64), of_b(64);
  functions.codes(a, of_a);
  functions.codes(b, of_b);
  CHECK(of_a == of_b);
}

TEST_CASE("slide: an empty bin of dwta takes the code of one that is not") {
  const HashShape shape{.family = Family::dwta, .width = 64, .k = 4, .l = 32, .key_bits = 12};
  const HashFunctions functions(shape, stream, 0);
  Floats x(64, 0.0f), scaled = x;
  x[5] = 1.0f;
  x[40] = 0.5f;
  for (std::size_t i = 0; i < x.size(); ++i) scaled[i] = 3.0f * x[i];
  std::vector<std::uint32_t> codes(128), same(128), none(128);
  functions.codes(x, codes);
  functions.codes(scaled, same);
  functions.codes(Floats(64, 0.0f), none);
  CHECK(codes == same);
  CHECK(*std::max_element(codes.begin(), codes.end()) < 8);
  // Two coordinates in 8 bins a permutation: nearly all codes are borrowed, and they differ.
  CHECK(std::set<std::uint32_t>(codes.begin(), codes.end()).size() > 2);
  CHECK(none == std::vector<std::uint32_t>(128, 0));
}

TEST_CASE("slide: every combination of codes has a bucket of its own, and fewer bits mix them all") {
  const HashShape shape{.family = Family::wta, .width = 64, .k = 6, .l = 1, .key_bits = 18};
  const HashFunctions whole(shape, stream, 0);
  HashShape fewer = shape;
  fewer.key_bits = 10;
  const HashFunctions mixed(fewer, stream, 0);
  std::vector<bool> taken(1 << 18);
  std::vector<int> load(1 << 10);
  std::size_t distinct = 0;
  for (std::uint32_t all = 0; all < 1 << 18; ++all) {
    std::vector<std::uint32_t> codes(6);
    for (std::uint32_t i = 0; i < 6; ++i) codes[i] = all >> 3 * i & 7;
    const std::uint32_t key = whole.key_of(codes);
    REQUIRE(key < taken.size());
    distinct += !taken[key];
    taken[key] = true;
    REQUIRE(mixed.key_of(codes) < load.size());
    ++load[mixed.key_of(codes)];
  }
  CHECK(distinct == std::size_t{1} << 18);
  const auto [least, most] = std::minmax_element(load.begin(), load.end());
  CHECK(*least > 256 - 6 * 16);
  CHECK(*most < 256 + 6 * 16);
}

TEST_CASE("slide: a vector is retrieved with the probabilities of K codes and L tables") {
  struct Row {
    double cosine, any, two, three;
  };
  constexpr int draws = 400;
  Random random(4);
  const HashShape shape{.family = Family::simhash, .width = 512, .k = 9, .l = 50, .key_bits = 9};
  for (const Row& row : {Row{0.3, 0.383622, 0.083912, 0.012503}, Row{0.5, 0.732284, 0.374790, 0.140874},
                         Row{0.7, 0.976493, 0.884939, 0.710218}, Row{0.9, 0.999999, 0.999989, 0.999902}}) {
    INFO("cosine " << row.cosine);
    int found[3] = {};
    for (int draw = 0; draw < draws; ++draw) {
      const HashFunctions functions(shape, stream, static_cast<std::uint64_t>(draw));
      const auto [a, b] = pair_of_cosine(row.cosine, 512, random);
      Tables tables({.tables = 50, .buckets = 512, .rows = 1});
      tables.build(functions, at::tensor(a).unsqueeze(0), stream, 0);
      std::vector<std::uint32_t> keys(50);
      functions.keys(b, keys);
      for (const int threshold : {1, 2, 3}) {
        ActiveSet set({.query = threshold == 1 ? Query::vanilla : Query::threshold,
                       .active = 1,
                       .threshold = threshold,
                       .min_active = 0},
                      1);
        set.select({}, &tables, keys, stream);
        found[threshold - 1] += set.retrieved() == 1;
      }
    }
    const double expected[] = {row.any, row.two, row.three};
    for (int i = 0; i < 3; ++i)
      CHECK(std::abs(found[i] / double{draws} - expected[i]) <=
            3 * deviation(expected[i], draws) + 0.5 / draws);
  }
}

TEST_CASE("slide: a full bucket holds each arrival with the same probability, or the last ones") {
  constexpr std::int64_t rows = 1000, kept = 128, tables_each = 50, builds = 8;
  const HashFunctions none({.family = Family::random, .width = 4, .k = 1, .l = tables_each, .key_bits = 1},
                           stream, 0);
  const at::Tensor weight = at::zeros({rows, 4});
  Tables tables({.tables = tables_each, .buckets = 2, .rows = rows, .bucket_size = kept});
  std::vector<double> times(rows, 0.0);
  for (std::uint64_t build = 0; build < builds; ++build) {
    tables.build(none, weight, stream, build);
    for (std::int64_t table = 0; table < tables_each; ++table) {
      const auto bucket = tables.bucket(table, 0);
      REQUIRE(std::set<std::int32_t>(bucket.begin(), bucket.end()).size() == kept);
      for (const std::int32_t row : bucket) ++times[static_cast<std::size_t>(row)];
    }
  }
  const double p = static_cast<double>(kept) / rows, draws = tables_each * builds;
  double chi_square = 0;
  for (const double each : times) chi_square += std::pow(each - draws * p, 2) / (draws * p * (1 - p));
  // 999 degrees of freedom, about normal: 3.1 standard deviations are p = 0.001 on either side.
  CHECK(std::abs(chi_square - 999) < 3.1 * std::sqrt(2.0 * 999));

  Tables last({.tables = 1, .buckets = 2, .rows = rows, .bucket_size = kept, .policy = Policy::fifo});
  last.build(none, weight, stream, 0);
  const auto bucket = last.bucket(0, 0);
  CHECK(std::set<std::int32_t>(bucket.begin(), bucket.end()).size() == kept);
  CHECK(*std::min_element(bucket.begin(), bucket.end()) == rows - kept);
  CHECK(last.bucket(0, 1).empty());
}

TEST_CASE("slide: buckets hold the rows that have their key") {
  Random random(5);
  const HashShape shape{.family = Family::simhash, .width = 20, .k = 4, .l = 7, .key_bits = 4};
  const HashFunctions functions(shape, stream, 3);
  const at::Tensor weight = at::tensor(normal(300 * 20, random)).view({300, 20});
  Tables tables({.tables = 7, .buckets = 16, .rows = 300, .bucket_size = 1000});
  tables.build(functions, weight, stream, 0);
  std::vector<std::uint32_t> keys(7);
  for (std::int64_t row = 0; row < 300; ++row) {
    functions.keys({weight.const_data_ptr<float>() + row * 20, 20}, keys);
    for (std::int64_t table = 0; table < 7; ++table) {
      const auto bucket = tables.bucket(table, keys[static_cast<std::size_t>(table)]);
      CHECK(std::count(bucket.begin(), bucket.end(), row) == 1);
    }
  }
}

TEST_CASE("slide: an active set has the labels, what was retrieved, and is filled up") {
  constexpr std::int64_t classes = 500;
  Random random(6);
  const HashShape shape{.family = Family::simhash, .width = 16, .k = 3, .l = 10, .key_bits = 3};
  const HashFunctions functions(shape, stream, 0);
  const at::Tensor weight = at::tensor(normal(classes * 16, random)).view({classes, 16});
  Tables tables({.tables = 10, .buckets = 8, .rows = classes});
  tables.build(functions, weight, stream, 0);
  std::vector<std::uint32_t> keys(10);
  functions.keys(normal(16, random), keys);
  std::vector<int> frequency(classes);
  for (std::int64_t table = 0; table < 10; ++table)
    for (const std::int32_t id : tables.bucket(table, keys[static_cast<std::size_t>(table)]))
      ++frequency[static_cast<std::size_t>(id)];
  const std::vector<std::int64_t> labels{7, 499, -1, -1};

  const auto selected = [&](const ActiveOptions& options, std::uint64_t step) {
    ActiveSet set(options, classes);
    std::vector<std::int64_t> ids;
    set.select(labels, &tables, keys, stream.at(step));
    const std::int64_t size = set.size(), retrieved = set.retrieved();
    set.take(ids);
    CHECK(std::is_sorted(ids.begin(), ids.end()));
    CHECK(std::set<std::int64_t>(ids.begin(), ids.end()).size() == ids.size());
    CHECK(std::ssize(ids) == size);
    CHECK(std::count(ids.begin(), ids.end(), 7) + std::count(ids.begin(), ids.end(), 499) == 2);
    CHECK(retrieved <= size - 2);
    // What was kept from the sample before shows in the next one.
    std::vector<std::int64_t> again;
    set.select(labels, &tables, keys, stream.at(step));
    set.take(again);
    CHECK(again == ids);
    return ids;
  };

  for (const Query query : {Query::vanilla, Query::topk, Query::threshold}) {
    CHECK(selected({.query = query, .active = 40, .min_active = 40}, 1).size() == 40);
    CHECK(selected({.query = query, .active = classes, .min_active = classes}, 1).size() == classes);
    CHECK(selected({.query = query, .active = 1, .min_active = 1}, 1).size() ==
          2);  // labels are never left out
  }
  const auto all =
      selected({.query = Query::threshold, .active = classes, .threshold = 3, .min_active = 0}, 1);
  for (std::int64_t id = 0; id < classes; ++id)
    CHECK((std::count(all.begin(), all.end(), id) == 1) ==
          (id == 7 || id == 499 || frequency[static_cast<std::size_t>(id)] >= 3));
  int least = 10;
  for (const std::int64_t id : selected({.query = Query::topk, .active = 30, .min_active = 0}, 1))
    if (id != 7 && id != 499) least = std::min(least, frequency[static_cast<std::size_t>(id)]);
  CHECK(std::count_if(frequency.begin(), frequency.end(), [&](int each) { return each > least; }) < 30);
  // Another step fills with other classes.
  CHECK(selected({.active = 400, .min_active = 400}, 1) != selected({.active = 400, .min_active = 400}, 2));
}

}  // namespace slide_hash_tests
