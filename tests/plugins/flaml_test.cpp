// What FLAML decides: which learner has the next trial, on what it is judged, and on how many samples it is trained.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <trainyard/random.hpp>

#include "plugins/study/blend_search.hpp"
#include "plugins/study/flaml/learner_choice.hpp"
#include "plugins/study/flaml/resampling.hpp"
#include "plugins/study/frugal_search.hpp"

namespace flaml_test {

using namespace studies;
using Catch::WithinAbs;

namespace {

LearnerRecord record(double spent, double at_best, double before, double best_cost, double rows, double error,
                     double error_before) {
  LearnerRecord made;
  made.spent = spent;
  made.spent_at_best = at_best;
  made.spent_before_best = before;
  made.best_cost = best_cost;
  made.rows = rows;
  made.all_rows = 50'000;
  made.error = error;
  made.error_before = error_before;
  made.trials = 9;
  return made;
}

std::vector<Candidate> candidates(const std::vector<LearnerRecord>& records) {
  std::vector<Candidate> all;
  for (const LearnerRecord& each : records) all.push_back({.record = &each});
  return all;
}

}  // namespace

TEST_CASE("FLAML's estimated costs for improvement, and how often each learner is chosen by them",
          "[flaml]") {
  // Computed with the reference's formulas.
  const std::vector<LearnerRecord> records = {
      record(100, 60, 30, 5, 10'000, 0.20, 0.22), record(100, 60, 30, 5, 10'000, 0.25, 0.30),
      record(40, 38, 10, 4, 50'000, 0.26, 0.30), record(2, 2, 0, 2, 10'000, 0.50, 1.0)};
  const double costs[] = {20.0, 140.0, 90.0, 2.4}, chances[] = {0.1031, 0.0147, 0.0229, 0.8592};
  for (std::size_t i = 0; i < records.size(); ++i)
    CHECK_THAT(cost_for_improvement(records[i], 0.20), WithinAbs(costs[i], 1e-9));
  const trainyard::RandomStream random(11, "choice");
  constexpr int draws = 100'000;
  std::vector<double> counts(records.size(), 0.0);
  for (std::uint64_t i = 0; i < draws; ++i) ++counts[*next_learner(candidates(records), random.uniform(i))];
  double chi_square = 0.0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    CHECK_THAT(counts[i] / draws, WithinAbs(chances[i], 0.004));
    const double expected = draws / costs[i] / (1 / 20.0 + 1 / 140.0 + 1 / 90.0 + 1 / 2.4);
    chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  CHECK(chi_square < 11.345);  // of three degrees of freedom, p > 0.01
}

TEST_CASE("a learner's record keeps what its best two errors had cost, and takes 0 as an error", "[flaml]") {
  LearnerRecord learner;
  learner.take(0.5, 3.0);
  CHECK((learner.error == 0.5 && learner.error_before == 1.0 && learner.spent_at_best == 3.0 &&
         learner.spent_before_best == 0.0));
  learner.take(0.7, 2.0);
  learner.take(LearnerRecord::infinity, 1.0);
  learner.take(std::nan(""), 1.0);
  CHECK((learner.error == 0.5 && learner.spent == 7.0 && learner.spent_at_best == 3.0));
  learner.take(0.0, 4.0);
  CHECK((learner.error == 0.0 && learner.error_before == 0.5 && learner.spent_at_best == 11.0 &&
         learner.spent_before_best == 3.0 && learner.best_cost == 4.0 && learner.first_cost == 3.0 &&
         learner.trials == 5));
  CHECK_THAT(cost_for_improvement(learner, 0.0), WithinAbs(8.0, 1e-12));
}

TEST_CASE(
    "the first learner begins; an untried one has its turn once it promises to be cheaper than the others",
    "[flaml]") {
  std::vector<LearnerRecord> records(3);
  records[1].relative_cost = 2.0;
  records[2].relative_cost = 50.0;
  CHECK(next_learner(candidates(records), 0.9) == std::optional<std::size_t>(0));
  records[0].take(0.4, 1.0);  // whose next improvement is to cost 1
  CHECK(next_learner(candidates(records), 0.9) == std::optional<std::size_t>(0));
  records[0].take(0.4, 1.5);
  CHECK(next_learner(candidates(records), 0.9) == std::optional<std::size_t>(0));
  records[0].take(0.4, 1.5);  // 3 now
  CHECK(next_learner(candidates(records), 0.9) == std::optional<std::size_t>(1));
  records[1].take(0.3, 2.0);
  CHECK(next_learner(candidates(records), 0.0) != std::optional<std::size_t>(2));
  for (int i = 0; i < 60; ++i) {
    records[0].take(0.4, 1.0);
    records[1].take(0.3, 1.0);
  }
  CHECK(next_learner(candidates(records), 0.5) == std::optional<std::size_t>(2));
  // Where none may have a trial, none has.
  std::vector<Candidate> busy = candidates(records);
  for (Candidate& each : busy) each.is_free = false;
  CHECK_FALSE(next_learner(busy, 0.5));
  busy[1].is_free = true;
  CHECK(next_learner(busy, 0.999999) == std::optional<std::size_t>(1));
}

TEST_CASE(
    "within a budget, a learner that costs a hundred times as much for the same errors has few of the trials",
    "[flaml]") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<LearnerRecord> records(2);
    records[1].relative_cost = 100.0;
    const trainyard::RandomStream random(seed, "choice"), errors(seed, "errors");
    constexpr double budget = 600.0;
    double spent = 0.0;
    std::uint64_t trials = 0;
    while (spent < budget) {
      std::vector<Candidate> all = candidates(records);
      all[1].is_free = 100.0 <= budget - spent;
      const std::size_t chosen = *next_learner(all, random.uniform(trials));
      const double cost = chosen == 0 ? 1.0 : 100.0;
      records[chosen].take(0.2 + 0.3 * errors.uniform(trials++), cost);
      spent += cost;
    }
    CAPTURE(seed, records[0].trials, records[1].trials);
    CHECK(records[1].trials * 50 <= static_cast<int>(trials));
  }
}

TEST_CASE("folds or a holdout, as FLAML 2.7 decides for the same samples, values and seconds", "[flaml]") {
  const struct {
    double rows, values, seconds;
    bool folds;
  } cases[] = {{1797, 64, 60, true},         {1797, 64, 1, false},      {60000, 784, 60, false},
               {20000, 20, 60, false},       {20000, 20, 200, true},    {150000, 10, 3600, false},
               {99999, 1, -1, true},         {200000, 1, -1, true},     {100000, 1, 3600, false},
               {99999, 1, 3600, true},       {644, 42, 21.5, true},     {11306, 75, 1.7, false},
               {110, 325, 8.6, false},       {626, 970, 49.3, false},   {69818, 26, 199.8, false},
               {325, 80, 1333.4, true},      {6009, 167, 261.3, false}, {165, 188, 134.3, true},
               {1057, 1, 1305.9, true},      {4048, 143, 1457.9, true}, {26794, 579, 26.4, false},
               {52855, 21, 2334.1, true},    {97307, 1, 3.1, false},    {546, 787, 37.2, false},
               {13508, 7, 67.0, true},       {2050, 11, 127.7, true},   {9692, 515, 285.2, false},
               {144017, 370, 3694.6, false}, {19157, 3, 1254.0, true},  {190437, 517, 111.9, false},
               {1000, 15, 5.5, false},       {1000, 15, 6.5, true}};
  for (const auto& each : cases) {
    CAPTURE(each.rows, each.values, each.seconds);
    CHECK(takes_folds(each.rows, each.values, each.seconds) == each.folds);
  }
}

TEST_CASE("what is held out stays the same while training takes four times as many samples, and then all",
          "[flaml]") {
  const Holdout small(40'000, 10'000);
  CHECK(small.first() == small.most());
  CHECK((small.parts(small.first()) == Parts{"folds 1 to 9 of 10", "fold 0 of 10"}));
  CHECK(Holdout(90'000, 0).first() == 9);
  const Holdout large(200'000, 10'000);
  std::vector<std::string> parts;
  std::vector<double> rows;
  for (std::int64_t folds = large.first();; folds = large.after(folds)) {
    CHECK(large.parts(folds).val == "folds 0 to 19 of 200");
    parts.push_back(large.parts(folds).train);
    rows.push_back(large.rows_of(folds));
    if (folds == large.most()) break;
  }
  CHECK((parts == std::vector<std::string>{"folds 20 to 29 of 200", "folds 20 to 59 of 200",
                                           "folds 20 to 199 of 200"}));
  CHECK((rows == std::vector<double>{10'000, 40'000, 180'000}));
}

TEST_CASE("a search whose trials have more samples tries its best again, and goes on from its error there",
          "[flaml]") {
  FrugalSearch search(std::vector<Knob>(2), {0.1, 0.1}, 3);
  const auto error = [](const Values& at) { return std::hypot(at[0] - 0.7, at[1] - 0.7); };
  Values best;
  double least = 9.0;
  for (int i = 0; i < 40; ++i) {
    const Values values = *search.next(0, false);
    if (error(values) < least) {
      least = error(values);
      best = values;
    }
    search.report(values, error(values));
  }
  search.try_best_again();
  CHECK_FALSE(search.next(1, true));
  CHECK(*search.next(0, true) == best);
  search.report(best, least + 100.0);  // all errors are larger there
  const Values after = *search.next(0, true);
  CHECK(after != best);
  search.report(after, 90.0);  // which is better
  const Values next = *search.next(0, true);
  CHECK(std::hypot(next[0] - after[0], next[1] - after[1]) < 0.2);
  // What others found is where a search begins.
  BlendSearch blend(std::vector<Knob>(2), {0.1, 0.1}, 3);
  blend.know({0.9, 0.2}, error({0.9, 0.2}), 1.0);
  blend.know({0.6, 0.6}, error({0.6, 0.6}), 1.0);
  CHECK(blend.local_searches() == 2);
  CHECK(*blend.next(0, 10.0) != Values{0.1, 0.1});
  FrugalSearch late(std::vector<Knob>(2), {0.1, 0.1}, 3);
  late.know({0.6, 0.6}, error({0.6, 0.6}));
  late.know({0.9, 0.2}, error({0.9, 0.2}));
  const Values first = *late.next(0);
  CHECK(std::hypot(first[0] - 0.6, first[1] - 0.6) < 0.15);
}

TEST_CASE("steps do not shorten where they may not", "[flaml]") {
  for (const bool may : {false, true}) {
    Flow2 flow(std::vector<Knob>(2), {0.5, 0.5}, 1.0, trainyard::RandomStream(1, "flow2"));
    const double before = flow.step();
    for (int i = 0; i < 40; ++i) flow.report(*flow.propose(may), 1.0);
    CHECK((flow.step() < before) == may);
  }
}

}  // namespace flaml_test
