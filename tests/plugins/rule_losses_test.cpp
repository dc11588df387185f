// Rules over losses.
#include <cmath>

#include <ATen/ATen.h>

#include "tests/support/rule_run.hpp"

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
}
