// Rules over losses.
#include <array>

#include <ATen/ATen.h>

#include "tests/support/rule_run.hpp"

namespace rule_losses_tests {

using namespace trainyard;
using test::infinite;
using test::no_number;
using test::Shown;
using test::steps;
using test::table;
using test::watch;

namespace {

using Steps = std::vector<std::int64_t>;

Shown loss(std::int64_t step, double value, Mode mode = Mode::train) {
  return {.tensors = {test::numbers("loss_output_0", at::full({}, value, at::kDouble))},
          .step = step,
          .mode = mode};
}

/// A loss every so many steps.
std::vector<Shown> losses(std::int64_t every, const std::vector<double>& values, Mode mode = Mode::train) {
  std::vector<Shown> run;
  for (const double value : values)
    run.push_back(loss(every * static_cast<std::int64_t>(run.size()), value, mode));
  return run;
}

const std::vector<double> published = {.3, .33, .31, .30, .28};

}  // namespace

TEST_CASE("loss_not_decreasing holds against the newest loss that is old enough") {
  const std::vector<Shown> run = losses(4, published);
  const Table must_fall = table({{"diff_percent", 0.0}});
  const auto fired = watch("loss_not_decreasing", must_fall, run);
  REQUIRE(fired.size() == 1);
  CHECK(run[fired[0].record].step == 12);
  CHECK(fired[0].finding.message ==
        "loss_output_0: it is 0.3 at step 12 and was 0.3 at step 0, expected a fall of any size");
  // From step 4 on it holds .28 of step 16 against .33 of step 4.
  CHECK(steps("loss_not_decreasing", table({{"diff_percent", 0.0}, {"start", "4ba"}, {"every", "4ba"}}),
              run) == Steps{});
  CHECK(steps("loss_not_decreasing", table({{"diff_percent", 0.0}, {"start", "13ba"}}), run) == Steps{});
  // The text of the guide; its own vector, which waits until step 24, contradicts it.
  CHECK(steps("loss_not_decreasing", table({{"diff_percent", 20.0}}), run) == Steps{12});
}

TEST_CASE("loss_not_decreasing looks every num_steps: with a loss every 3 steps, 21 against 9, then 33") {
  // Only step 9 is lower than 21, only 21 lower than 33: other pairs would not fire.
  std::vector<double> values;
  for (int i = 0; i <= 14; ++i) values.push_back(100.0 - i);
  values[3] = 50.0;
  values[7] = 60.0;
  values[11] = 61.0;
  const Table options = table({{"start", "9ba"}, {"every", "3ba"}});
  CHECK(steps("loss_not_decreasing", options, losses(3, values)) == Steps{21, 33});
  values[11] = 59.0;
  CHECK(steps("loss_not_decreasing", options, losses(3, values)) == Steps{21});
}

TEST_CASE("loss_not_decreasing: percent of the older loss, losses below 0 and losses that are no numbers") {
  const auto one = [](double before, double after, double percent) {
    return !steps("loss_not_decreasing", table({{"diff_percent", percent}}), losses(10, {before, after}))
                .empty();
  };
  CHECK_FALSE(one(2.0, 1.5, 25.0));
  CHECK(one(2.0, 1.51, 25.0));
  CHECK_FALSE(one(-1.0, -1.01, 0.1));
  CHECK(one(-1.0, -0.9, 0.1));
  CHECK(one(1.0, 1.2, 0.0));
  CHECK(one(1.0, no_number, 0.1));
  CHECK(one(1.0, infinite, 0.1));
  CHECK(one(no_number, no_number, 0.1));
  CHECK(one(0.0, 0.0, 0.1));
  CHECK_FALSE(one(no_number, 1.0, 0.1));
  CHECK_FALSE(one(infinite, 1.0, 0.1));
}

TEST_CASE("loss_not_decreasing takes the losses of evaluations where there are any, else those of training") {
  std::vector<Shown> run = losses(5, {4, 4, 4});
  CHECK(steps("loss_not_decreasing", {}, run) == Steps{10});
  const auto evaluations = [&](double last) {
    std::vector<Shown> both;
    for (int i = 0; i < 3; ++i) {
      both.push_back(loss(10 * i, 3.0 - i, Mode::eval));
      both.push_back(loss(10 * i + 5, 4.0));
    }
    both.push_back(loss(30, last, Mode::eval));
    return both;
  };
  CHECK(steps("loss_not_decreasing", {}, evaluations(0.5)) == Steps{});
  CHECK(steps("loss_not_decreasing", {}, evaluations(1.5)) == Steps{30});
  CHECK(steps("loss_not_decreasing", table({{"mode", "train"}}), evaluations(0.5)) == Steps{15, 25});
  CHECK(steps("loss_not_decreasing", table({{"mode", "global"}}), evaluations(1.5)) == Steps{});
  // The first evaluation is held against no loss of training, and the next one is looked at.
  run = {loss(0, 1.0), loss(10, 0.5), loss(12, 2.0, Mode::eval), loss(22, 2.0, Mode::eval)};
  CHECK(steps("loss_not_decreasing", {}, run) == Steps{22});
}

TEST_CASE("overfit holds an evaluation against the mean loss of training since the one before") {
  const auto run = [](const std::vector<std::array<double, 3>>& epochs) {
    std::vector<Shown> shown;
    std::int64_t step = 0;
    for (const auto& [first, second, validation] : epochs) {
      shown.push_back(loss(step++, first));
      shown.push_back(loss(step++, second));
      shown.push_back(loss(step / 2 - 1, validation, Mode::eval));
    }
    return shown;
  };
  const std::vector<Shown> learns =
      run({{2.0, 1.8, 2.0}, {1.1, 0.9, 1.09}, {0.5, 0.5, 0.7}, {0.1, 0.3, 0.9}});
  const auto fired = watch("overfit", {}, learns);
  REQUIRE(fired.size() == 2);
  CHECK(learns[fired[0].record].step == 2);
  CHECK(learns[fired[0].record].mode == Mode::eval);
  CHECK(test::evidence(fired[0].finding, "loss_output_0") == Approx(0.4));
  CHECK(test::evidence(fired[1].finding, "loss_output_0") == Approx(3.5));
  CHECK(steps("overfit", table({{"patience", 2}}), learns) == Steps{3});
  CHECK(steps("overfit", table({{"ratio_threshold", 0.4}}), run({{0.5, 0.5, 0.7}})) == Steps{});
  CHECK(steps("overfit", table({{"start_step", 6}}), learns) == Steps{3});
  // An evaluation that is not above it begins the row anew; NaN is none.
  CHECK(steps("overfit", table({{"patience", 2}}),
              run({{1, 1, 2}, {1, 1, 1}, {1, 1, 2}, {1, 1, no_number}, {1, 1, 2}, {1, 1, 2}})) == Steps{5});
  // Nothing to hold it against.
  CHECK(steps("overfit", {}, {loss(0, 1.0, Mode::eval)}) == Steps{});
}

TEST_CASE("overtraining waits for a better loss, each mode by its own patience") {
  CHECK(steps("overtraining", {}, losses(1, {5, 4, 4, 4, 4, 4, 4})) == Steps{6});
  CHECK(steps("overtraining", {}, losses(1, {5, 4, 4, 4, 4, 4, 3, 3})) == Steps{});
  // A fall by delta does not count, a longer one does.
  CHECK(steps("overtraining", table({{"patience_train", 2}, {"delta", 0.5}}), losses(1, {3, 2.5, 2.0})) ==
        Steps{});
  CHECK(steps("overtraining", table({{"patience_train", 2}, {"delta", 0.5}}), losses(1, {3, 2.5, 2.5})) ==
        Steps{2});
  const std::vector<double> flat(12, 1.0);
  CHECK(steps("overtraining", {}, losses(1, flat, Mode::eval)) == Steps{10, 11});
  CHECK(steps("overtraining", table({{"patience_validation", 1}}),
              losses(1, {1, no_number, 0.5}, Mode::eval)) == Steps{1});
  // Of two losses the one that has risen further is told first, however high they are.
  std::vector<Shown> two;
  for (int i = 0; i < 3; ++i)
    two.push_back({.tensors = {test::numbers("loss_a", at::full({}, 100.0 + (i > 0), at::kDouble)),
                               test::numbers("loss_b", at::full({}, i > 0 ? 9.0 : 1.0, at::kDouble))},
                   .step = i});
  const auto worst = watch("overtraining", table({{"patience_train", 2}, {"tensors", "^loss_"}}), two);
  REQUIRE(worst.size() == 1);
  CHECK(worst[0].finding.message.starts_with("loss_b: it is 9"));
  // A loss of training is no better evaluation.
  std::vector<Shown> both = losses(1, flat, Mode::eval);
  for (int i = 0; i < 12; ++i) both.insert(both.begin() + 2 * i, loss(i, 12.0 - i));
  CHECK(steps("overtraining", {}, both) == Steps{10, 11});
}

TEST_CASE("stalled_training fires when nothing comes for its time, and at no other") {
  test::RuleRun run("stalled_training", {});
  CHECK_FALSE(run.show(loss(0, 1.0)));
  CHECK_FALSE(run.wait(1799.9));
  CHECK(run.rule().common.every == Duration{1.0, Duration::Unit::steps});
  const auto finding = run.wait(1800.0);
  REQUIRE(finding);
  CHECK(finding->message == "nothing was recorded for 1800 s, expected something within 1800 s");
  test::RuleRun once("stalled_training", table({{"threshold", 2.0}, {"repeat", false}}));
  CHECK(once.wait(2.0));
  once.resume();
  CHECK_FALSE(once.wait(3.0));
}

}  // namespace rule_losses_tests
