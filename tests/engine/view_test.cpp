// Parts of a dataset: `take`.
#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include <catch2/catch.hpp>

#include <trainyard/error.hpp>

#include "core/engine/train/view.hpp"
#include "support/files.hpp"

namespace trainyard::train {
namespace {

std::vector<std::int64_t> taken(const std::string& text, std::int64_t size) {
  const View view("data.train.take", config::parse_take(text).value(), size);
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < view.size(); ++i) all.push_back(view[i]);
  return all;
}

std::vector<std::int64_t> range(std::int64_t from, std::int64_t to) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(to - from));
  std::iota(all.begin(), all.end(), from);
  return all;
}

}  // namespace

TEST_CASE("take: the first and the last samples, and all but these") {
  CHECK(taken("first 3", 10) == range(0, 3));
  CHECK(taken("last 3", 10) == range(7, 10));
  CHECK(taken("all but first 3", 10) == range(3, 10));
  CHECK(taken("all but last 3", 10) == range(0, 7));
  CHECK(taken("first 25%", 10) == range(0, 2));
  CHECK(taken("all but first 25%", 10) == range(2, 10));
  CHECK(taken("last 100%", 10) == range(0, 10));
  CHECK(taken("first 10", 10) == range(0, 10));
}

TEST_CASE("take: folds share the samples out evenly, and all but one is what the others have") {
  for (std::int64_t folds = 2; folds <= 7; ++folds)
    for (std::int64_t size = folds; size <= 60; ++size) {
      std::vector<std::int64_t> seen;
      for (std::int64_t fold = 0; fold < folds; ++fold) {
        const std::string name = "fold " + std::to_string(fold) + " of " + std::to_string(folds);
        const std::vector<std::int64_t> part = taken(name, size), rest = taken("all but " + name, size);
        INFO(name << " of " << size << " samples");
        REQUIRE(static_cast<std::int64_t>(part.size()) >= size / folds);
        REQUIRE(static_cast<std::int64_t>(part.size()) <= size / folds + 1);
        REQUIRE(std::is_sorted(part.begin(), part.end()));
        std::vector<std::int64_t> both;
        std::merge(part.begin(), part.end(), rest.begin(), rest.end(), std::back_inserter(both));
        REQUIRE(both == range(0, size));
        seen.insert(seen.end(), part.begin(), part.end());
      }
      std::sort(seen.begin(), seen.end());
      REQUIRE(seen == range(0, size));
    }
}

TEST_CASE("take: several folds are what each of them is, in the order of the file") {
  for (std::int64_t size = 5; size <= 60; ++size)
    for (std::int64_t first = 0; first < 5; ++first)
      for (std::int64_t last = first; last < 5; ++last) {
        const std::string name = "folds " + std::to_string(first) + " to " + std::to_string(last) + " of 5";
        INFO(name << " of " << size << " samples");
        std::vector<std::int64_t> each, both;
        for (std::int64_t fold = first; fold <= last; ++fold)
          std::ranges::copy(taken("fold " + std::to_string(fold) + " of 5", size), std::back_inserter(each));
        std::ranges::sort(each);
        REQUIRE(taken(name, size) == each);
        if (last - first == 4) continue;
        std::ranges::merge(each, taken("all but " + name, size), std::back_inserter(both));
        REQUIRE(both == range(0, size));
      }
  // As they were drawn before there were several: runs that are resumed have these.
  CHECK(taken("fold 1 of 5", 40) == std::vector<std::int64_t>{3, 9, 14, 17, 20, 29, 33, 35});
}

TEST_CASE("take: labels are those of its samples") {
  for (const char* text : {"first 4", "all but last 3", "fold 1 of 3", "all but fold 1 of 3"}) {
    const View view("data.train.take", config::parse_take(text).value(), 11);
    std::vector<std::int64_t> labels, expected;
    for (std::int64_t i = 0; i < 11; ++i) labels.push_back(100 + i);
    for (const std::int64_t sample : taken(text, 11)) expected.push_back(100 + sample);
    CHECK(view.of(labels) == expected);
    CHECK(view.of({}).empty());
  }
}

TEST_CASE("take: a fold has each place of its blocks as often, whatever period the file has") {
  constexpr std::int64_t folds = 5, blocks = 20'000;
  for (std::int64_t fold = 0; fold < folds; ++fold) {
    std::map<std::int64_t, std::int64_t> count, pairs;
    const std::vector<std::int64_t> part =
        taken("fold " + std::to_string(fold) + " of " + std::to_string(folds), folds * blocks);
    for (std::size_t i = 0; i < part.size(); ++i) {
      ++count[part[i] % folds];
      if (i > 0) ++pairs[part[i - 1] % folds * folds + part[i] % folds];
    }
    // Within four standard deviations of a binomial count.
    for (std::int64_t place = 0; place < folds; ++place) CHECK(std::abs(count[place] - 4000) < 4 * 57);
    for (std::int64_t pair = 0; pair < folds * folds; ++pair) CHECK(std::abs(pairs[pair] - 800) < 4 * 28);
  }
}

TEST_CASE("take: what is no part of the samples is told") {
  for (const char* text :
       {"", "first", "first -1", "first 0", "first 3 of 5", "fold 5 of 5", "fold 0 of 1", "folds 2 to 1 of 5",
        "folds 0 to 5 of 5", "folds 0 of 5", "fold 0 to 1 of 5", "10%", "all but", "all first 3", "first 0%",
        "first 101%", "fold x of 5", "first 1e3", "FIRST 3"})
    CHECK_FALSE(config::parse_take(text));
  using test::message_of;
  CHECK_THAT(message_of<ConfigError>([] { taken("first 11", 10); }),
             Catch::Contains("data.train.take asks for 11 samples, and there are 10"));
  CHECK_THAT(message_of<ConfigError>([] { taken("all but last 10", 10); }),
             Catch::Contains("leaves none of the 10 samples"));
  CHECK_THAT(message_of<ConfigError>([] { taken("first 5%", 10); }), Catch::Contains("leaves none"));
  CHECK_THAT(message_of<ConfigError>([] { taken("all but fold 1 of 2", 0); }),
             Catch::Contains("leaves none"));
}

TEST_CASE("take: samples that cannot be graded are left out of what is taken") {
  View view("data.val.take", config::parse_take("last 5").value(), 10);
  CHECK(view.samples() == range(5, 10));
  view.leave_out("data.val", {0, 6, 9});
  REQUIRE(view.size() == 3);
  CHECK(view.of(range(0, 10)) == std::vector<std::int64_t>{5, 7, 8});
  CHECK(test::message_of<DataError>([&] {
          view.leave_out("data.val", {5, 7, 8});
        }) == "none of the 3 samples of data.val can be graded: the training split has nothing like them");
}

}  // namespace trainyard::train
