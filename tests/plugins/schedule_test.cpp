#include <cmath>

#include <catch2/catch.hpp>

#include <trainyard/schedule.hpp>

#include "tests/support/plugin.hpp"

namespace schedule_tests {

using namespace trainyard;

namespace {

std::unique_ptr<Schedule> rex(double beta) {
  return test::make<Schedule>("rex", test::table({{"beta", beta}}));
}

SchedulePoint done(double progress) {
  return {.progress = progress};
}

}  // namespace

TEST_CASE("rex has the published values") {
  const auto paper = test::make<Schedule>("rex");
  const double values[][2] = {{0, 1},    {.1, .947368}, {.2, .888889},  {.25, .857143}, {.5, .666667},
                              {.75, .4}, {.9, .181818}, {.95, .095238}, {.99, .019802}, {1, 0}};
  for (const auto& [progress, factor] : values)
    CHECK(paper->factor(done(progress)) == Approx(factor).margin(1e-6));
  const double steep[][2] = {{0, 1},         {.1, .989011}, {.2, .97561},   {.25, .967742}, {.5, .909091},
                             {.75, .769231}, {.9, .526316}, {.95, .344828}, {.99, .091743}, {1, 0}};
  for (const auto& [progress, factor] : steep)
    CHECK(rex(0.9)->factor(done(progress)) == Approx(factor).margin(1e-6));
}

TEST_CASE("rex is its own inverse, has the area 2 - 2 ln 2 and is a line at beta 0") {
  const auto paper = test::make<Schedule>("rex");
  for (int i = 0; i <= 1000; ++i) {
    const double p = i / 1000.0;
    CHECK(paper->factor(done(paper->factor(done(p)))) == Approx(p).epsilon(0).margin(1e-15));
    // Reflected: of g(u) = (1 - u) / (1 + u), which falls fast at first.
    const double g = (1 - (1 - p)) / (1 + (1 - p));
    CHECK(paper->factor(done(p)) == Approx(1 - g).epsilon(0).margin(1e-15));
    CHECK(rex(0.0)->factor(done(p)) == 1 - p);
  }
  const int points = 200000;
  double area = 0, steep_area = 0;
  const auto steep = rex(0.9);
  for (int i = 0; i < points; ++i) {
    area += paper->factor(done((i + 0.5) / points)) / points;
    steep_area += steep->factor(done((i + 0.5) / points)) / points;
  }
  CHECK(area == Approx(2 - 2 * std::log(2.0)).margin(1e-9));
  CHECK(steep_area == Approx(1 / 0.9 - 0.1 / 0.81 * std::log(10.0)).margin(1e-9));
}

TEST_CASE("linear goes from 1 to its end, constant stays") {
  const auto line = test::make<Schedule>("linear");
  const auto raised = test::make<Schedule>("linear", test::table({{"end_factor", 0.25}}));
  const auto constant = test::make<Schedule>("constant");
  for (int i = 0; i <= 100; ++i) {
    const double p = i / 100.0;
    CHECK(line->factor(done(p)) == 1 - p);
    CHECK(raised->factor(done(p)) == Approx(1 - 0.75 * p).epsilon(1e-15));
    CHECK(constant->factor(done(p)) == 1.0);
  }
  CHECK(raised->factor(done(1.0)) == 0.25);
  CHECK(test::make<Schedule>("constant", test::table({{"value", 0.5}}))->factor(done(0.3)) == 0.5);
}

TEST_CASE("options that contradict each other or the budget are refused") {
  const RunScale scale{.steps_per_epoch = 100, .total_steps = 100};
  const auto opened = [&](const char* name, const Table& options, const RunScale& of) {
    const auto schedule = test::make<Schedule>(name, options);
    ScheduleCurve(*schedule, of);
  };
  using Catch::Contains;
  CHECK_THROWS_WITH(opened("exponential", test::table({{"gamma", 0.5}, {"end_factor", 0.5}}), scale),
                    Contains("give one"));
  CHECK_THROWS_WITH(opened("exponential", {}, {}), Contains("schedule.gamma and schedule.per"));
  CHECK_THROWS_WITH(opened("wsd", test::table({{"decay", "101ba"}}), scale),
                    Contains("schedule.decay = \"101ba\" (101 steps) exceeds the 100 steps"));
  CHECK_THROWS_WITH(opened("step", {}, {}), Contains("schedule.every = \"30%\"") && Contains("use ba"));
  CHECK_NOTHROW(opened("step", test::table({{"every", "20ba"}}), {}));
}

TEST_CASE("the operators reach a plugin: delayed linear and delayed rex") {
  const RunScale scale{
      .steps_per_epoch = 100, .samples_per_epoch = 100, .samples_per_step = 1, .total_steps = 100};
  const auto line = test::make<Schedule>("linear", test::table({{"delay", "50%"}}));
  CHECK(ScheduleCurve(*line, scale).factor(75) == Approx(0.5));
  const auto delayed = test::make<Schedule>("rex", test::table({{"delay", "25%"}}));
  CHECK(ScheduleCurve(*delayed, scale).factor(50) == Approx(0.8));
  CHECK(ScheduleCurve(*delayed, scale).factor(75) == Approx(0.5));
}

}  // namespace schedule_tests
