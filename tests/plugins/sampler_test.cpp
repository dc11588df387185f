#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <catch2/catch.hpp>
#include <trainyard/sampler.hpp>

#include "support/files.hpp"
#include "support/plugin.hpp"

namespace sampler_tests {

using namespace trainyard;
using test::make;
using test::message_of;
using test::table;

namespace {

std::unique_ptr<Sampler> open(const std::string& name, std::int64_t size, std::uint64_t seed = 1,
                              std::vector<std::int64_t> labels = {}, const Table& options = {}) {
  auto sampler = make<Sampler>(name, options);
  sampler->open({size, RandomStream(seed, "sampler"), std::move(labels), {}});
  return sampler;
}

std::vector<std::int64_t> epoch(const Sampler& sampler, std::int64_t number) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(sampler.size()));
  sampler.order(number, 0, order);
  return order;
}

bool is_permutation_of_range(std::vector<std::int64_t> order) {
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i)
    if (order[i] != static_cast<std::int64_t>(i)) return false;
  return true;
}

double chi_square(const std::vector<double>& counts, const std::vector<double>& expected) {
  double statistic = 0.0;
  for (std::size_t i = 0; i < counts.size(); ++i)
    statistic += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
  return statistic;
}

/// A chi-square statistic as a standard normal one (Wilson and Hilferty, PNAS 17, 1931). Seeds are fixed, so
/// a test that holds once holds always.
double normal_score(double statistic, double degrees) {
  const double variance = 2.0 / (9.0 * degrees);
  return (std::cbrt(statistic / degrees) - (1.0 - variance)) / std::sqrt(variance);
}

double normal_score(const std::vector<double>& counts, double expected) {
  return normal_score(chi_square(counts, std::vector<double>(counts.size(), expected)),
                      static_cast<double>(counts.size()) - 1);
}

}  // namespace

TEST_CASE("samplers: the order of any range is that of the whole epoch") {
  for (const char* name : {"sequential", "random", "weighted"}) {
    const auto sampler = open(name, 50, 3, std::vector<std::int64_t>(50, 1),
                              name == std::string("weighted") ? table({{"balance", true}}) : Table{});
    const auto whole = epoch(*sampler, 4);
    for (std::int64_t first : {0, 1, 17, 49}) {
      std::vector<std::int64_t> part(static_cast<std::size_t>(std::min<std::int64_t>(7, 50 - first)));
      sampler->order(4, first, part);
      CHECK(std::equal(part.begin(), part.end(), whole.begin() + first));
    }
  }
}

TEST_CASE("sequential: the order of the dataset in every epoch") {
  const auto sampler = open("sequential", 5);
  CHECK(epoch(*sampler, 0) == std::vector<std::int64_t>{0, 1, 2, 3, 4});
  CHECK(epoch(*sampler, 9) == epoch(*sampler, 0));
}

TEST_CASE("random: an exact permutation for every size") {
  for (std::int64_t size = 1; size <= 300; ++size)
    for (std::int64_t e : {0, 1, 1000}) REQUIRE(is_permutation_of_range(epoch(*open("random", size), e)));
  for (std::int64_t size : {4096, 4097, 60000, 1000003}) {
    INFO(size);
    CHECK(is_permutation_of_range(epoch(*open("random", size), 2)));
  }
}

TEST_CASE("random: epochs and seeds give other orders") {
  const auto sampler = open("random", 1000, 1), other = open("random", 1000, 2);
  CHECK(epoch(*sampler, 0) == epoch(*open("random", 1000, 1), 0));
  const auto agreements = [](const auto& a, const auto& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0, std::plus<>(), std::equal_to<>());
  };
  // Two random permutations agree in one place on average (Poisson).
  CHECK(agreements(epoch(*sampler, 0), epoch(*sampler, 1)) < 8);
  CHECK(agreements(epoch(*sampler, 0), epoch(*other, 0)) < 8);
}

TEST_CASE("random: every sample is equally likely at every position") {
  for (const std::int64_t size : {2, 3, 10, 60, 300}) {
    const auto sampler = open("random", size, 7);
    const auto n = static_cast<std::size_t>(size);
    const int epochs = 20000;
    std::vector<double> counts(n * n);
    for (int e = 0; e < epochs; ++e) {
      const auto order = epoch(*sampler, e);
      for (std::size_t i = 0; i < n; ++i) ++counts[i * n + static_cast<std::size_t>(order[i])];
    }
    // The sums of rows and columns are fixed: (n - 1)^2 degrees are left, and the statistic is n / (n - 1) of
    // theirs.
    const auto d = static_cast<double>(n - 1);
    const double statistic = chi_square(counts, std::vector<double>(n * n, epochs / static_cast<double>(n)));
    INFO(size);
    CHECK(std::abs(normal_score(statistic * d / static_cast<double>(n), d * d)) < 4.0);
  }
}

TEST_CASE("random: all orders of a few samples are equally likely") {
  const auto sampler = open("random", 4, 11);
  std::map<std::vector<std::int64_t>, double> seen;
  for (int e = 0; e < 24000; ++e) ++seen[epoch(*sampler, e)];
  std::vector<double> counts;
  counts.reserve(seen.size());
  for (const auto& [order, count] : seen) counts.push_back(count);
  REQUIRE(counts.size() == 24);
  CHECK(std::abs(normal_score(counts, 1000.0)) < 4.0);
}

TEST_CASE("random: neighbours in the order are independent") {
  // The distance between two neighbours of 60000, in 50 bins that a uniform pair fills equally.
  const std::int64_t size = 60000;
  const auto order = epoch(*open("random", size, 5), 0);
  std::vector<double> counts(50);
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    const std::int64_t distance = (order[i + 1] - order[i] + size) % size;
    ++counts[static_cast<std::size_t>(distance * 50 / size)];
  }
  CHECK(std::abs(normal_score(counts, static_cast<double>(size - 1) / 50.0)) < 4.0);
}

TEST_CASE("weighted: classes are drawn by their weights, samples of a class equally") {
  std::vector<std::int64_t> labels(1000);
  for (std::size_t i = 0; i < labels.size(); ++i)
    labels[i] = i < 700 ? 0 : i < 950 ? 1 : i < 990 ? 3 : 4;  // no 2
  const auto draws = [&](const Table& options) {
    const auto sampler = open("weighted", 1000, 3, labels, options);
    REQUIRE(sampler->size() == 200000);
    return epoch(*sampler, 0);
  };
  const auto by_class = [&](const std::vector<std::int64_t>& order) {
    std::vector<double> counts(4);
    for (const std::int64_t index : order) {
      const std::int64_t label = labels.at(static_cast<std::size_t>(index));
      ++counts[static_cast<std::size_t>(label > 2 ? label - 1 : label)];
    }
    return counts;
  };
  SECTION("balance") {
    const auto order = draws(table({{"balance", true}, {"size", 200000}}));
    CHECK(std::abs(normal_score(by_class(order), 50000.0)) < 4.0);
    std::vector<double> counts(700);
    for (const std::int64_t index : order)
      if (index < 700) ++counts[static_cast<std::size_t>(index)];
    const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
    CHECK(std::abs(normal_score(counts, total / 700)) < 4.0);
  }
  SECTION("class weights") {
    const auto order = draws(table({{"class_weights", Array{1.0, 2.0, 9.0, 0.0, 10.0}}, {"size", 200000}}));
    // Mass 700, 500, none, 0, 100 of 1300.
    const auto counts = by_class(order);
    CHECK(counts[2] == 0.0);
    const double unit = 200000.0 / 1300.0;
    CHECK(std::abs(normal_score(
              chi_square({counts[0], counts[1], counts[3]}, {700 * unit, 500 * unit, 100 * unit}), 2)) < 4.0);
  }
}

TEST_CASE("weighted: rows are drawn by the weights of a file, by their numbers in the data") {
  test::TempFolder folder;
  const std::string path = folder.write("weights.csv", "row,weight\n3,5\n1,1\n2,0\n4,0.5\n5,3.5\n");
  const Table options = table({{"row_weights", path}, {"size", 100000}});
  const auto counts_of = [](const Sampler& sampler, std::size_t size) {
    std::vector<double> counts(size);
    for (const std::int64_t index : epoch(sampler, 0)) ++counts.at(static_cast<std::size_t>(index));
    return counts;
  };
  const auto all = counts_of(*open("weighted", 5, 3, {}, options), 5);
  CHECK(all[1] == 0.0);
  CHECK(std::abs(normal_score(chi_square({all[0], all[2], all[3], all[4]}, {1e4, 5e4, 5e3, 3.5e4}), 3)) <
        4.0);
  auto part = make<Sampler>("weighted", options);  // of rows 2, 4 and 5, as `take` may give it
  part->open({3, RandomStream(3, "sampler"), {}, {1, 3, 4}, 5});
  const auto taken = counts_of(*part, 3);
  CHECK(taken[0] == 0.0);
  CHECK(std::abs(normal_score(chi_square({taken[1], taken[2]}, {12500, 87500}), 1)) < 4.0);
  const auto message = [&](const std::string& text, std::int64_t size) {
    const Table given = table({{"row_weights", folder.write("other.csv", text)}});
    return message_of<Error>([&] { open("weighted", size, 1, {}, given); });
  };
  CHECK_THAT(message("row,weight\n1,1\n2,1\n", 3), Catch::Contains("has 2 rows, and the training data 3"));
  for (const std::int64_t rows : {4, 6})  // of the data: the file has 5
    CHECK_THAT(
        message_of<DataError>([&] {
          make<Sampler>("weighted", options)->open({3, RandomStream(3, "sampler"), {}, {0, 1, 2}, rows});
        }),
        Catch::Contains("has 5 rows, and the training data " + std::to_string(rows)));
  CHECK_THAT(message("row,weight\n1,1\n1,1\n", 2), Catch::Contains("none of them is row 2"));
  CHECK_THAT(message("row,weight\n1,1\n3,1\n", 2), Catch::Contains("none of them is row 2"));
  CHECK_THAT(message("row,weight\n1,-1\n2,1\n", 2), Catch::Contains("other.csv:2: has \"-1\""));
  CHECK_THAT(message("row,weight\n1,inf\n2,1\n", 2), Catch::Contains("\"inf\""));
  CHECK_THAT(message("row,weight\n1,0\n2,0\n", 2), Catch::Contains("weight of 0"));
  CHECK_THAT(message("row,score\n1,0\n2,0\n", 2), Catch::Contains("no column \"weight\""));
}

TEST_CASE("weighted: what cannot be drawn is a config error") {
  const std::vector<std::int64_t> labels = {0, 1, 2, 2};
  const auto message = [&](std::vector<std::int64_t> given, const Table& options) {
    return message_of<ConfigError>([&] { open("weighted", 4, 1, std::move(given), options); });
  };
  CHECK_THAT(message(labels, {}), Catch::Contains("set one of balance = true, class_weights"));
  CHECK_THAT(message(labels, table({{"balance", true}, {"class_weights", Array{1.0, 1.0, 1.0}}})),
             Catch::Contains("set one of"));
  CHECK_THAT(message({}, table({{"balance", true}})), Catch::Contains("needs a dataset with classes"));
  CHECK_THAT(message(labels, table({{"class_weights", Array{1.0, 1.0}}})),
             Catch::Contains("has 2 numbers, the data has 3 classes"));
  CHECK_THAT(message(labels, table({{"class_weights", Array{0.0, 0.0, 0.0}}})),
             Catch::Contains("weight of 0"));
}

}  // namespace sampler_tests
