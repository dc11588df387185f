#include <cmath>
#include <limits>

#include <catch2/catch.hpp>

#include <trainyard/schedule.hpp>

namespace schedule_tests {

using namespace trainyard;
using Catch::Contains;

namespace {

/// 1 at the start, 0.2 at the end.
double line_at(double progress) {
  return 1.0 - 0.8 * progress;
}
struct Line final : Schedule {
  double factor(const SchedulePoint& at) const override { return line_at(at.progress); }
};

/// The progress itself, to see what the operators ask for.
struct Identity final : Schedule {
  double factor(const SchedulePoint& at) const override { return at.progress; }
};

Duration duration(const char* text) {
  return Duration::parse(text).value();
}

/// 10 epochs of 20 steps.
const RunScale scale{
    .steps_per_epoch = 20, .samples_per_epoch = 100, .samples_per_step = 5, .total_steps = 200};

}  // namespace

TEST_CASE("without operators the curve is the schedule itself, from 0 to 1 over the budget") {
  Line line;
  const ScheduleCurve curve(line, scale);
  for (std::int64_t t = 0; t <= 200; ++t) CHECK(curve.factor(t) == line_at(static_cast<double>(t) / 200.0));
}

TEST_CASE("an overrun holds the end") {
  Line line;
  const ScheduleCurve curve(line, scale);
  CHECK(curve.factor(200) == line_at(1.0));
  CHECK(curve.factor(220) == line_at(1.0));
}

TEST_CASE("warm-up is a line to the first step after it") {
  Line line;
  line.common.warmup = duration("5%");
  line.common.warmup_start = 0.1;
  const ScheduleCurve curve(line, scale);
  CHECK(curve.factor(0) == 0.1);
  for (std::int64_t t = 0; t < 10; ++t)
    CHECK(curve.factor(t) == Approx(0.1 + 0.9 * static_cast<double>(t) / 10));
  CHECK(curve.factor(10) == 1.0);
  CHECK(curve.factor(105) == Approx(line_at(0.5)));
  CHECK(curve.factor(200) == Approx(0.2));
}

TEST_CASE("a delay stays at the start of the curve, after the warm-up") {
  Line line;
  line.common.warmup = duration("1ep");
  line.common.delay = duration("80ba");
  const ScheduleCurve curve(line, scale);
  CHECK(curve.factor(10) == Approx(0.5));
  for (std::int64_t t = 20; t <= 100; ++t) CHECK(curve.factor(t) == 1.0);
  CHECK(curve.factor(101) < 1.0);
  CHECK(curve.factor(150) == Approx(line_at(0.5)));
}

TEST_CASE("a floor squeezes the whole curve above it, delay and warm-up's goal included") {
  Identity identity;
  identity.common.floor = 0.2;
  identity.common.delay = duration("100ba");
  identity.common.warmup = duration("10ba");
  const ScheduleCurve curve(identity, scale);
  CHECK(curve.factor(5) == Approx(0.1));
  CHECK(curve.factor(10) == Approx(0.2));
  CHECK(curve.factor(110) == Approx(0.2));
  CHECK(curve.factor(155) == Approx(0.2 + 0.8 * 0.5));
  CHECK(curve.factor(200) == 1.0);
}

TEST_CASE("sampling moves the progress only every so often, counted from the curve's first step") {
  Identity identity;
  identity.common.warmup = duration("7ba");
  identity.common.sampling = duration("1ep");
  const ScheduleCurve curve(identity, scale);
  for (std::int64_t t = 7; t < 200; ++t) {
    const std::int64_t sampled = (t - 7) / 20 * 20;
    CHECK(curve.factor(t) == static_cast<double>(sampled) / 193.0);
  }
  identity.common.sampling = duration("0.01ep");  // finer than a step: each step
  CHECK(ScheduleCurve(identity, scale).factor(8) == 1.0 / 193.0);
}

TEST_CASE("the factor is a pure function of the step") {
  Line line;
  line.common.warmup = duration("10%");
  const ScheduleCurve curve(line, scale);
  const double forward = curve.factor(133);
  for (std::int64_t t = 200; t >= 0; --t) curve.factor(t);
  CHECK(curve.factor(133) == forward);
}

TEST_CASE("warm-up and delay may take the whole budget, not more") {
  Line line;
  line.common.warmup = duration("50%");
  line.common.delay = duration("100ba");
  const ScheduleCurve curve(line, scale);
  CHECK(curve.factor(199) == 1.0);
  CHECK(curve.factor(200) == Approx(0.2));
  line.common.delay = duration("101ba");
  CHECK_THROWS_WITH(ScheduleCurve(line, scale), Catch::Contains("exceed the run of 200 steps") &&
                                                    Catch::Contains("101") &&
                                                    Catch::Contains("max_duration"));
}

TEST_CASE("lengths that do not translate to steps are refused") {
  using Catch::Contains;
  Line line;
  const auto refused = [&](const char* text) {
    CHECK_THROWS_AS(ScheduleCurve(line, scale), ConfigError);
    CHECK_THROWS_WITH(ScheduleCurve(line, scale), Contains(text));
    line.common = {};
  };
  line.common.warmup = duration("90s");
  refused("schedule.warmup = \"90s\" is wall time");
  line.common.delay = duration("1e6tok");
  refused("schedule.delay = \"1e+06tok\" counts tokens");
  line.common.sampling = duration("1m");
  refused("schedule.sampling");
}

TEST_CASE("a schedule that gives no finite number is the plugin's error") {
  struct Broken final : Schedule {
    double factor(const SchedulePoint&) const override { return std::numeric_limits<double>::quiet_NaN(); }
  };
  Broken broken;
  CHECK_THROWS_AS(ScheduleCurve(broken, scale).factor(3), PluginError);
}

TEST_CASE("a curve may begin later and be scaled") {
  Line line;
  const ScheduleCurve whole(line, scale);
  RunScale rest = scale;
  rest.total_steps -= 50;
  const ScheduleCurve restarted(line, rest, {.start = 50});
  CHECK(restarted.factor(50) == whole.factor(0));
  CHECK(restarted.factor(scale.total_steps) == whole.factor(scale.total_steps));
  const ScheduleCurve spliced(line, scale, {.gain = 0.5});
  CHECK(spliced.factor(70) == 0.5 * whole.factor(70));
}

TEST_CASE("without a budget in steps a curve stays at its beginning") {
  Line line;
  RunScale endless = scale;
  endless.total_steps = 0;
  line.common.warmup = duration("4ba");
  const ScheduleCurve curve(line, endless);
  CHECK(curve.factor(2) == Approx(0.5 * curve.factor(4)));
  CHECK(curve.factor(1000) == curve.factor(4));
}

TEST_CASE("the budget is the length of the whole, and ends ahead of the run") {
  Identity identity;
  identity.common.budget = duration("100ba");
  identity.common.warmup = duration("10%");
  const ScheduleCurve curve(identity, scale);
  CHECK(curve.end() == 100);
  CHECK(curve.factor(10) == 0.0);
  CHECK(curve.factor(55) == 0.5);
  CHECK(curve.factor(100) == 1.0);
  CHECK(curve.factor(199) == 1.0);
  const ScheduleCurve later(identity, scale, {.start = 50});
  CHECK(later.end() == 150);
  CHECK(later.factor(105) == 0.5);
  identity.common.budget = duration("9ba");
  identity.common.warmup = duration("10ba");
  CHECK_THROWS_WITH(ScheduleCurve(identity, scale),
                    Contains("exceed the budget of 9 steps") && Contains("raise schedule.budget"));
}

TEST_CASE("the factor may move at milestones alone, of what follows the delay") {
  Identity identity;
  identity.common.delay = duration("100ba");
  identity.common.milestones = {duration("50%"), duration("20ba")};
  const ScheduleCurve curve(identity, scale);
  CHECK(curve.factor(119) == 0.0);
  CHECK(curve.factor(120) == 0.2);
  CHECK(curve.factor(149) == 0.2);
  CHECK(curve.factor(150) == 0.5);
  CHECK(curve.factor(199) == 0.5);
  CHECK(curve.factor(200) == 1.0);
}

TEST_CASE("the ways up of the warm-up") {
  Line line;
  line.common.warmup = duration("10ba");
  line.common.warmup_start = 0.1;
  line.common.warmup_curve = "cosine";
  CHECK(ScheduleCurve(line, scale).factor(5) == Approx(0.1 + 0.9 * 0.5));
  CHECK(ScheduleCurve(line, scale).factor(2) ==
        Approx(0.1 + 0.9 * (1 - std::cos(0.2 * std::acos(-1.0))) / 2));
  line.common.warmup_curve = "1-sqrt";
  CHECK(ScheduleCurve(line, scale).factor(5) == Approx(0.1 + 0.9 * (1 - std::sqrt(0.5))));
}

TEST_CASE("a schedule is opened with what warm-up and delay leave, and read in steps of it") {
  struct Steps final : Schedule {
    void open(const RunScale& given) override { length = given.total_steps; }
    double factor(const SchedulePoint& at) const override {
      CHECK(at.steps == length);
      return static_cast<double>(at.step);
    }
    std::optional<double> momentum(const SchedulePoint& at) const override { return 0.9 * at.progress; }
    std::int64_t length = 0;
  } steps;
  steps.common.warmup = duration("40ba");
  steps.common.delay = duration("60ba");
  const ScheduleCurve curve(steps, scale);
  CHECK(steps.length == 100);
  CHECK(curve.factor(99) == 0);
  CHECK(curve.factor(130) == 30);
  CHECK(curve.factor(250) == 100);
  CHECK(*curve.momentum(10) == 0.0);
  CHECK(*curve.momentum(150) == 0.45);
  CHECK(*curve.momentum(200) == 0.9);
}

}  // namespace schedule_tests
