// Durations: the grammar, and the arithmetic that turns them into steps.
#include <catch2/catch.hpp>

#include <cmath>
#include <random>

#include <trainyard/duration.hpp>

namespace duration_tests {

using trainyard::Duration;
using trainyard::RunScale;
using Unit = Duration::Unit;

TEST_CASE("a duration is a number and a unit") {
  CHECK(Duration::parse("10ep") == Duration{10, Unit::epochs});
  CHECK(Duration::parse("1000ba") == Duration{1000, Unit::steps});
  CHECK(Duration::parse("5e6sp") == Duration{5e6, Unit::samples});
  CHECK(Duration::parse("2e9tok") == Duration{2e9, Unit::tokens});
  CHECK(Duration::parse("20%") == Duration{20, Unit::percent});
  CHECK(Duration::parse("2.5ep") == Duration{2.5, Unit::epochs});
  CHECK(Duration::parse("0ba") == Duration{0, Unit::steps});
}

TEST_CASE("wall time may be of several parts, each smaller than the one before") {
  CHECK(Duration::parse("90s") == Duration{90, Unit::seconds});
  CHECK(Duration::parse("1h30m") == Duration{5400, Unit::seconds});
  CHECK(Duration::parse("1d2h3m4s") == Duration{86400 + 7200 + 180 + 4, Unit::seconds});
  CHECK_FALSE(Duration::parse("30m1h"));
  CHECK_FALSE(Duration::parse("1h1h"));
  CHECK_FALSE(Duration::parse("1h30ep"));
  CHECK_FALSE(Duration::parse("1ep30m"));
}

TEST_CASE("anything else is not a duration") {
  for (const char* text :
       {"",      "ep",    "10",      "10 ep",  " 10ep",     "10ep ",    "-1ep",        "+1ep",
        "nanep", "infba", "1e999ba", "0x10ba", "30 epochs", "30epochs", "10Ep",        "1ep2ep",
        "20%%",  "1.ep.", "1h30",    ".5ep",   "e5ba",      "1e308d",   "1e308h1e308m"})
    CHECK_FALSE(Duration::parse(text));
}

TEST_CASE("the text of a duration parses to the same duration") {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-3, 12);
  for (int i = 0; i < 20000; ++i) {
    const Duration made{
        i % 3 == 0 ? std::floor(std::pow(10, exponent(random))) : std::pow(10, exponent(random)),
        static_cast<Unit>(random() % 6)};
    INFO(made.text());
    REQUIRE(Duration::parse(made.text()) == made);
  }
}

TEST_CASE("no text crashes the parser, and what parses is finite and not negative") {
  std::mt19937_64 random(2);
  const std::string letters = "0123456789.e+-eptokbasmhd% xn";
  int parsed = 0;
  for (int i = 0; i < 200000; ++i) {
    std::string text;
    for (std::size_t n = random() % 8; n > 0; --n) text += letters[random() % letters.size()];
    const std::optional<Duration> duration = Duration::parse(text);
    if (!duration) continue;
    ++parsed;
    INFO(text);
    REQUIRE(std::isfinite(duration->count));
    REQUIRE(duration->count >= 0.0);
    REQUIRE(Duration::parse(duration->text()) == duration);
  }
  CHECK(parsed > 1000);
}

TEST_CASE("durations become steps by the scale of the run") {
  // 1000 samples in batches of 64: 16 steps an epoch, the last of 40 samples.
  const RunScale scale{16, 1000, 64, 128, 480};
  const auto steps = [&](const char* text) { return Duration::parse(text)->steps(scale); };
  CHECK(steps("30ep") == 480);
  CHECK(steps("0.5ep") == 8);
  CHECK(steps("100ba") == 100);
  CHECK(steps("50%") == 240);
  CHECK(steps("0.1%") == 0);
  CHECK(steps("64sp") == 1);
  CHECK(steps("65sp") == 2);
  CHECK(steps("1000sp") == 16);
  CHECK(steps("1001sp") == 17);
  CHECK(steps("128000tok") == 16);
  CHECK_FALSE(steps("10s"));
}

TEST_CASE("a duration longer than any run is as many steps as none takes, never fewer than a shorter one") {
  const RunScale scale{16, 1000, 64, 128, 480}, endless{16, 1000, 64, 128, Duration::most_steps};
  constexpr double two = 2.0;
  for (const char* unit : {"ep", "ba", "sp", "tok", "%"})
    for (const RunScale& each : {scale, endless}) {
      std::int64_t before = 0;
      for (int power = 0; power < 1024; ++power) {
        const Duration duration{std::pow(two, power), Duration::parse("1" + std::string(unit))->unit};
        INFO(duration.text());
        const std::int64_t steps = duration.steps(each).value();
        REQUIRE(steps >= before);
        REQUIRE(steps <= Duration::most_steps);
        before = steps;
      }
      CHECK(before == Duration::most_steps);
    }
  CHECK(Duration::parse("4503599627370495ba")->steps(scale) == (std::int64_t{1} << 52) - 1);
  CHECK(Duration::parse("1e19ba")->steps(scale) == Duration::most_steps);
  CHECK(Duration::parse("99999999999999999999ba")->steps(scale) == Duration::most_steps);
}

TEST_CASE("what the scale does not tell has no steps") {
  CHECK_FALSE(Duration::parse("1ep")->steps({}));
  CHECK_FALSE(Duration::parse("1sp")->steps({}));
  CHECK_FALSE(Duration::parse("1tok")->steps({16, 1000, 64, 0, 480}));
  CHECK_FALSE(Duration::parse("5%")->steps({16, 1000, 64, 128, 0}));
  CHECK(Duration::parse("7ba")->steps({}) == 7);
}

TEST_CASE("steps grow with the duration, and shares of a whole add up to it") {
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    RunScale scale;
    scale.samples_per_epoch = 1 + static_cast<std::int64_t>(random() % 5000);
    scale.samples_per_step = 1 + static_cast<std::int64_t>(random() % 300);
    scale.steps_per_epoch = (scale.samples_per_epoch + scale.samples_per_step - 1) / scale.samples_per_step;
    scale.tokens_per_sample = 1 + static_cast<std::int64_t>(random() % 100);
    scale.total_steps = 1 + static_cast<std::int64_t>(random() % 100000);
    for (const Unit unit : {Unit::epochs, Unit::steps, Unit::samples, Unit::tokens, Unit::percent}) {
      const double a = static_cast<double>(random() % 10000) / 10.0,
                   b = a + static_cast<double>(random() % 100);
      INFO(a << " and " << b << " of unit " << static_cast<int>(unit));
      REQUIRE(*Duration{a, unit}.steps(scale) <= *Duration{b, unit}.steps(scale));
    }
    REQUIRE(Duration{100, Unit::percent}.steps(scale) == scale.total_steps);
    const double epochs = static_cast<double>(1 + random() % 50);
    REQUIRE(Duration{epochs * static_cast<double>(scale.samples_per_epoch), Unit::samples}.steps(scale) ==
            Duration{epochs, Unit::epochs}.steps(scale));
  }
}

}  // namespace duration_tests
