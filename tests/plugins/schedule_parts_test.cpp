// Schedules that are made of schedules.
#include <catch2/catch.hpp>

#include <trainyard/schedule.hpp>

#include "tests/support/plugin.hpp"

namespace schedule_parts_tests {

using namespace trainyard;
using Catch::Contains;

namespace {

const RunScale scale{
    .steps_per_epoch = 20, .samples_per_epoch = 100, .samples_per_step = 5, .total_steps = 200};

using Entries = std::initializer_list<std::pair<const char*, Value>>;

Value part(const char* type, Entries entries = {}) {
  Table table = test::table(entries);
  table.set("type", type);
  return table;
}

/// A schedule with the curve that it makes.
struct Opened {
  Opened(const Value& table, const RunScale& of = scale)
      : schedule(test::make<Schedule>(table.as<Table>().find("type")->as<std::string>(), table.as<Table>())),
        curve(*schedule, of) {}
  std::unique_ptr<Schedule> schedule;
  ScheduleCurve curve;
};

Value made_of(const char* type, Array parts, Entries entries = {}) {
  Value table = part(type, entries);
  table.as<Table>().set("parts", std::move(parts));
  return table;
}

void check_equal(const Value& one, const Value& other) {
  const Opened a(one), b(other);
  for (std::int64_t t = 0; t <= 230; ++t) {
    INFO("step " << t);
    CHECK(a.curve.factor(t) == b.curve.factor(t));
    CHECK(a.curve.momentum(t) == b.curve.momentum(t));
  }
}

const Value up = part("linear", {{"start_factor", 0.1}, {"end_factor", 1.0}, {"budget", "30ba"}});
const Value cycle = part("one_cycle", {{"budget", "50ba"}, {"warmup", "5ba"}});
const Value rest = part("rex", {{"warmup", "10%"}, {"floor", 0.05}});

}  // namespace

TEST_CASE("a sequence or a chain of one schedule is that schedule") {
  for (const char* whole : {"sequence", "chain"}) {
    check_equal(made_of(whole, {rest}), rest);
    check_equal(made_of(whole, {cycle}), cycle);
    check_equal(made_of(whole, {made_of(whole, {part("cosine")})}), part("cosine"));
  }
}

TEST_CASE("nested sequences are the flat one") {
  const Value flat = made_of("sequence", {up, cycle, rest});
  check_equal(made_of("sequence", {up, made_of("sequence", {cycle, rest})}), flat);
  check_equal(made_of("sequence", {made_of("sequence", {up, cycle}, {{"budget", "80ba"}}), rest}), flat);
  check_equal(made_of("sequence", {made_of("sequence", {made_of("sequence", {up, cycle, rest})})}), flat);
}

TEST_CASE("each part of a sequence runs on a clock of its own, to its own end") {
  const Opened whole(made_of("sequence", {up, cycle, rest}));
  RunScale left = scale;
  left.total_steps = 120;
  const Opened first(up), second(cycle), third(rest, left);
  for (std::int64_t t = 0; t < 230; ++t)
    CHECK(whole.curve.factor(t) == (t < 30   ? first.curve.factor(t)
                                    : t < 80 ? second.curve.factor(t - 30)
                                             : third.curve.factor(t - 80)));
}

TEST_CASE("the momentum of a part holds before and after it, as around a warm-up") {
  const Opened whole(made_of("sequence", {up, cycle, rest})), alone(cycle);
  for (std::int64_t t = 0; t < 230; ++t)
    CHECK(whole.curve.momentum(t) == alone.curve.momentum(t < 30 ? 0 : t < 80 ? t - 30 : 50));
  CHECK_FALSE(Opened(made_of("sequence", {up, rest})).curve.momentum(50));
}

TEST_CASE("a chain does not depend on the order of its parts") {
  const Value step = part("step", {{"every", "7ba"}, {"gamma", 0.83}});
  const Value third = part("constant", {{"value", 1.0 / 3}, {"length", "90ba"}});
  check_equal(made_of("chain", {rest, step, third}), made_of("chain", {third, rest, step}));
  check_equal(made_of("chain", {rest, step, third}), made_of("chain", {step, third, rest}));
  const Value restarts = part("warm_restarts", {{"first", "40ba"}});
  check_equal(made_of("chain", {restarts, step}), made_of("chain", {step, restarts}));
}

TEST_CASE("a sequence that is longer than the budget ends with it") {
  RunScale brief = scale;
  brief.total_steps = 40;
  const Opened whole(made_of("sequence", {up, cycle, rest}), brief);
  CHECK(whole.curve.factor(39) == Opened(cycle, brief).curve.factor(9));
  CHECK(whole.curve.factor(60) == whole.curve.factor(40));
  CHECK_FALSE(
      Opened(made_of("sequence", {part("constant", {{"budget", "40ba"}}), cycle}), brief).curve.momentum(0));
}

TEST_CASE("parts that do not go together are refused") {
  CHECK_THROWS_WITH(Opened(made_of("sequence", {rest, up})),
                    Contains("schedule.parts[0] has no `budget`") && Contains("others come after it"));
  CHECK_THROWS_WITH(Opened(made_of("chain", {cycle, part("one_cycle")})),
                    Contains("more than one") && Contains("cycle_momentum = false"));
  for (const char* whole : {"sequence", "chain"})
    CHECK_THROWS_WITH(Opened(made_of(whole, {})), Contains("schedule.parts is empty"));
}

}  // namespace schedule_parts_tests
