// Looking back over a trial, and which steps a rule looks at.
#include <limits>

#include <catch2/catch.hpp>

#include <trainyard/rule_set.hpp>

namespace trial_tests {

using namespace trainyard;

namespace {

std::shared_ptr<const StepRecord> record(Mode mode, std::int64_t step,
                                         const std::vector<std::string>& names) {
  auto record = std::make_shared<StepRecord>();
  record->mode = mode;
  record->mode_step = record->step = step;
  for (const std::string& name : names)
    record->tensors.push_back({.name = name, .shape = {}, .statistics = {}, .value = {}});
  return record;
}

}  // namespace

TEST_CASE("a trial finds steps and the tensor of the step before") {
  Trial trial;
  trial.add(record(Mode::train, 0, {"a", "b"}));
  trial.add(record(Mode::train, 5, {"b"}));
  trial.add(record(Mode::eval, 7, {"a"}));
  trial.add(record(Mode::train, 10, {"a", "b"}));
  REQUIRE(trial.find(Mode::train, 5) != nullptr);
  CHECK(trial.find(Mode::train, 5)->find("b") != nullptr);
  CHECK(trial.find(Mode::train, 7) == nullptr);
  CHECK(trial.find(Mode::eval, 7)->mode == Mode::eval);
  const StepRecord& newest = *trial.find(Mode::train, 10);
  CHECK(trial.previous(newest, "a") == trial.find(Mode::train, 0));  // not the evaluation's
  CHECK(trial.previous(newest, "b") == trial.find(Mode::train, 5));
  CHECK(trial.previous(newest, "c") == nullptr);
  trial.go_back(5);
  CHECK(trial.records().size() == 1);

  Trial short_one;
  short_one.keep(2);
  for (std::int64_t step = 0; step < 5; ++step) short_one.add(record(Mode::train, step, {"a"}));
  CHECK(short_one.find(Mode::train, 2) == nullptr);
  CHECK(short_one.find(Mode::train, 3) != nullptr);
}

TEST_CASE("the next step of a cadence is the first that is due") {
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t every : {1, 3, 10})
    for (const std::int64_t start : {0, 4, 20})
      for (const std::int64_t end : {0, 5, 24}) {
        const RuleCadence cadence{
            .watches = {}, .modes = {Mode::train}, .every = every, .start = start, .end = end};
        for (std::int64_t step = 0; step < 40; ++step) {
          std::int64_t first = step;
          while (first < 100 && !cadence.due(Mode::train, first)) ++first;
          INFO("every " << every << " from " << start << " to " << end << ", step " << step);
          CHECK(cadence.next(step) == (first == 100 ? never : first));
        }
      }
  const RuleCadence evaluations{.watches = {}, .modes = {Mode::eval}, .every = 10};
  CHECK(evaluations.due(Mode::eval, 3));
  CHECK_FALSE(evaluations.due(Mode::train, 0));
  CHECK(evaluations.next(0) == never);
}

}  // namespace trial_tests
