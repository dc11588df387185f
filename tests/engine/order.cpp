// The order of hooks (events.md, rules 1 to 3) against one that is found by trying all permutations.
#include "core/plugins/order.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <optional>
#include <random>

#include "core/runfile/hook_order.hpp"

namespace order_tests {

using namespace trainyard;
using namespace trainyard::events;
using Catch::Matchers::Contains;

namespace {

/// Plugins of a run, each with its hooks.
class Plugins {
 public:
  Plugins& add(const std::string& id, std::vector<HookSpec> hooks) {
    participants_.push_back({id, id, std::move(hooks)});
    return *this;
  }
  const std::vector<Participant>& participants() const { return participants_; }
  Order order() const { return make_order(participants_); }

  std::vector<std::string> ids(const Order& order, Event event) const {
    std::vector<std::string> result;
    for (const Place& place : order.places[static_cast<std::size_t>(event)])
      result.push_back(participants_[place.participant].id);
    return result;
  }
  std::vector<std::string> ids(Event event) const { return ids(order(), event); }

 private:
  std::vector<Participant> participants_;
};

HookSpec observer(Event event) {
  return {.event = event};
}
HookSpec writer(Event event, Regions regions) {
  return {.event = event, .phase = Phase::transform, .writes = regions};
}
HookSpec sink(Event event) {
  return {.event = event, .phase = Phase::sink};
}
HookSpec with_priority(HookSpec hook, int priority) {
  hook.priority = priority;
  return hook;
}
HookSpec after(HookSpec hook, const std::string& other) {
  hook.after = {other};
  return hook;
}
HookSpec before(HookSpec hook, const std::string& other) {
  hook.before = {other};
  return hook;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("phases come first, then priority, then constraints, then config order") {
  Plugins run;
  run.add("tensorboard", {sink(Event::batch_end)})
      .add("late", {with_priority(observer(Event::batch_end), 90)})
      .add("b", {observer(Event::batch_end)})
      .add("a", {observer(Event::batch_end)})
      .add("first_of_all", {before(observer(Event::batch_end), "b")})
      .add("noise", {writer(Event::batch_end, Region::hyper)})
      .add("early", {with_priority(observer(Event::batch_end), 10)});
  CHECK(run.ids(Event::batch_end) ==
        Names{"noise", "early", "a", "first_of_all", "b", "late", "tensorboard"});
  CHECK(run.order().problems.empty());
}

TEST_CASE("each place says why it stands behind the one before it") {
  Plugins run;
  run.add("one", {writer(Event::batch_start, Region::batch)})
      .add("two", {after(writer(Event::batch_start, Region::batch), "one")})
      .add("three", {observer(Event::batch_start)})
      .add("four", {with_priority(observer(Event::batch_start), 60)})
      .add("five", {with_priority(observer(Event::batch_start), 60)});
  const Order order = run.order();
  Names reasons;
  for (const Place& place : order.places[static_cast<std::size_t>(Event::batch_start)])
    reasons.push_back(place.reason);
  CHECK(reasons == Names{"", "two declares after = one", "phase transform before observe",
                         "priority 50 before 60", "config order"});
}

TEST_CASE("on a closing event transforms run in the reverse of the opening order, observers forward") {
  Plugins run;
  run.add("a", {writer(Event::eval_start, Region::model), writer(Event::eval_end, Region::model),
                observer(Event::eval_start), observer(Event::eval_end)})
      .add("b", {after(writer(Event::eval_start, Region::model), "a"),
                 after(writer(Event::eval_end, Region::model), "a"), observer(Event::eval_start),
                 observer(Event::eval_end)});
  CHECK(run.ids(Event::eval_start) == Names{"a", "b", "a", "b"});
  CHECK(run.ids(Event::eval_end) == Names{"b", "a", "a", "b"});

  SECTION("also where only the opening half says where it stands") {
    Plugins half;
    half.add("a", {writer(Event::before_loss, Region::batch), writer(Event::after_loss, Region::batch)})
        .add("b", {with_priority(writer(Event::before_loss, Region::batch), 10),
                   writer(Event::after_loss, Region::outputs)});
    CHECK(half.ids(Event::before_loss) == Names{"b", "a"});
    CHECK(half.ids(Event::after_loss) == Names{"a", "b"});
  }
  SECTION("also where what ordered two of them has no closing half") {
    Plugins chain;
    chain
        .add("last", {after(writer(Event::before_loss, Region::batch), "middle"),
                      writer(Event::after_loss, Region::batch)})
        .add("middle", {after(writer(Event::before_loss, Region::batch), "first")})
        .add("first",
             {writer(Event::before_loss, Region::batch), writer(Event::after_loss, Region::outputs)});
    CHECK(chain.ids(Event::before_loss) == Names{"first", "middle", "last"});
    CHECK(chain.ids(Event::after_loss) == Names{"last", "first"});
  }
  SECTION("exception and shutdown are the reverse of init") {
    Plugins whole;
    for (const char* id : {"a", "b", "c"})
      whole.add(id, {writer(Event::init, Region::plugin_own), writer(Event::exception, Region::plugin_own),
                     writer(Event::shutdown, Region::plugin_own)});
    CHECK(whole.ids(Event::init) == Names{"a", "b", "c"});
    CHECK(whole.ids(Event::exception) == Names{"c", "b", "a"});
    CHECK(whole.ids(Event::shutdown) == Names{"c", "b", "a"});
  }
}

TEST_CASE("a cycle names its plugins and its edges") {
  Plugins run;
  run.add("clip", {after(writer(Event::after_backward, Region::grads), "noise")})
      .add("compress", {after(writer(Event::after_backward, Region::grads), "clip")})
      .add("noise", {after(writer(Event::after_backward, Region::grads), "compress")})
      .add("bystander", {writer(Event::after_backward, Region::plugin_own)});
  const Order order = run.order();
  REQUIRE(order.problems.size() == 1);
  CHECK(order.problems[0].code == "E318");
  CHECK_THAT(order.problems[0].message, Contains("order cycle at after_backward: "));
  for (const char* edge : {"noise -> clip", "clip -> compress", "compress -> noise"})
    CHECK_THAT(order.problems[0].message, Contains(edge));
  CHECK_THAT(order.problems[0].message, !Contains("bystander"));
  CHECK_THAT(order.problems[0].hint, Contains("clip declares after = noise") &&
                                         Contains("noise declares after = compress") &&
                                         Contains("compress declares after = clip"));
  SECTION("a priority against a constraint is one, too") {
    Plugins two;
    two.add("a", {with_priority(observer(Event::init), 10)})
        .add("b", {with_priority(before(observer(Event::init), "a"), 90)});
    REQUIRE(two.order().problems.size() == 1);
    CHECK_THAT(two.order().problems[0].hint, Contains("priority 10 before 90"));
  }
}

TEST_CASE("two writers of one region need a declared order") {
  const auto problems = [](const HookSpec& a, const HookSpec& b) {
    Plugins run;
    run.add("a", {a}).add("b", {b});
    return run.order().problems;
  };
  const HookSpec grads = writer(Event::before_step, Region::grads);
  const auto unordered = problems(grads, grads);
  REQUIRE(unordered.size() == 1);
  CHECK(unordered[0].code == "E319");
  CHECK(unordered[0].message == "\"a\" and \"b\" both write grads at before_step in no declared order");
  CHECK(unordered[0].hint == "give one of them `after = [\"a\"]`, or drop one");

  std::vector<Participant> listed = {
      {"a", "x", {grads}, true}, {"b", "x", {grads}, true}, {"c", "x", {grads}, true}};
  CHECK(make_order(listed).problems.empty());
  listed[1].in_order_of_file = false;
  CHECK(make_order(listed).problems.size() == 2);

  CHECK(problems(grads, after(grads, "a")).empty());
  CHECK(problems(grads, before(grads, "a")).empty());
  CHECK(problems(grads, with_priority(grads, 60)).empty());
  CHECK(problems(grads, writer(Event::before_step, Region::hyper)).empty());
  CHECK(problems(grads, observer(Event::before_step)).empty());
  CHECK(problems(writer(Event::batch_end, Region::metrics), writer(Event::batch_end, Region::metrics))
            .empty());  // they add to it
  CHECK(problems(writer(Event::safe_point, Region::control), writer(Event::safe_point, Region::control))
            .empty());

  SECTION("a chain through a third plugin is an order") {
    Plugins run;
    run.add("a", {grads}).add("b", {after(grads, "a")}).add("c", {after(grads, "b")});
    CHECK(run.order().problems.empty());
  }
  SECTION("one plugin may write twice") {
    Plugins run;
    run.add("a", {grads, grads});
    CHECK(run.order().problems.empty());
  }
  SECTION("of a pair that is reversed at its closing event as well") {
    Plugins run;
    run.add("a", {writer(Event::eval_start, Region::random), writer(Event::eval_end, Region::model)})
        .add("b", {writer(Event::eval_start, Region::plugin_own), writer(Event::eval_end, Region::model)});
    REQUIRE(run.order().problems.size() == 1);
    CHECK_THAT(run.order().problems[0].message, Contains("both write model at eval_end"));
  }
}

TEST_CASE("a region that may not be written at an event is refused") {
  Plugins run;
  run.add("eager", {writer(Event::before_forward, Region::model)});
  const auto problems = run.order().problems;
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].code == "E320");
  CHECK(problems[0].message == "eager declares that it writes model at before_forward");
  CHECK_THAT(problems[0].hint, Contains("batch, random, control"));
}

TEST_CASE("a hook at an event that only several ranks fire is refused") {
  for (const Event event : {Event::before_reduce, Event::after_reduce}) {
    Plugins run;
    run.add("late", {observer(event)});
    const auto problems = run.order().problems;
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].code == "E321");
    CHECK(problems[0].message ==
          "late subscribes to " + std::string(name(event)) + ", which nothing fires in a run of one rank");
  }
  Plugins run;
  run.add("all", {observer(Event::after_backward), observer(Event::before_step), observer(Event::micro_end)});
  CHECK(run.order().problems.empty());
}

namespace {

/// One phase of one event, by all permutations: of those that break no rule, the first in config order.
std::optional<std::vector<std::size_t>> by_trial(const std::vector<HookSpec>& hooks) {
  std::vector<std::size_t> order(hooks.size());
  std::iota(order.begin(), order.end(), 0);
  const auto id = [](std::size_t i) { return std::string(1, static_cast<char>('a' + i)); };
  const auto names = [](const std::vector<std::string>& list, const std::string& who) {
    return std::find(list.begin(), list.end(), who) != list.end();
  };
  do {
    bool holds = true;
    for (std::size_t i = 0; i < order.size(); ++i)
      for (std::size_t j = i + 1; j < order.size(); ++j) {
        const HookSpec &x = hooks[order[i]], &y = hooks[order[j]];
        holds = holds && x.priority <= y.priority && !names(y.before, id(order[i])) &&
                !names(x.after, id(order[j]));
      }
    if (holds) return order;
  } while (std::next_permutation(order.begin(), order.end()));
  return std::nullopt;
}

}  // namespace

TEST_CASE("random sets of hooks stand in the first order that breaks no rule") {
  std::mt19937 random(20);
  const auto any = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
  int cycles = 0, orders = 0;
  for (int round = 0; round < 2000; ++round) {
    const int count = 2 + any(5);
    std::vector<HookSpec> hooks;
    for (int i = 0; i < count; ++i) {
      HookSpec hook = with_priority(observer(Event::batch_end), any(4) == 0 ? 40 : 50);
      for (auto* list : {&hook.before, &hook.after})
        if (any(3) == 0) {
          const int other = any(count);
          if (other != i) list->push_back(std::string(1, static_cast<char>('a' + other)));
        }
      hooks.push_back(hook);
    }
    Plugins run;
    for (int i = 0; i < count; ++i)
      run.add(std::string(1, static_cast<char>('a' + i)), {hooks[static_cast<std::size_t>(i)]});
    const Order order = run.order();
    const auto expected = by_trial(hooks);
    ++(expected ? orders : cycles);
    REQUIRE(order.problems.empty() == expected.has_value());
    if (!expected) continue;
    std::vector<std::size_t> found;
    for (const Place& place : order.places[static_cast<std::size_t>(Event::batch_end)])
      found.push_back(place.participant);
    REQUIRE(found == *expected);
  }
  CHECK(orders > 200);  // both kinds were met
  CHECK(cycles > 200);
}

TEST_CASE("where the rules decide every pair, the place in the run file does not matter") {
  std::mt19937 random(21);
  std::vector<std::pair<std::string, HookSpec>> hooks;
  hooks.reserve(6);
  for (int i = 0; i < 6; ++i)
    hooks.emplace_back("p" + std::to_string(i), with_priority(observer(Event::batch_end), 10 * i));
  hooks[4].second.priority = hooks[3].second.priority;
  hooks[4].second.before = {"p3"};
  std::optional<Names> first;
  for (int round = 0; round < 200; ++round) {
    std::shuffle(hooks.begin(), hooks.end(), random);
    Plugins run;
    for (const auto& [id, hook] : hooks) run.add(id, {hook});
    const Names found = run.ids(Event::batch_end);
    if (!first) first = found;
    REQUIRE(found == *first);
  }
  CHECK(*first == Names{"p0", "p1", "p2", "p4", "p3", "p5"});
}

TEST_CASE("a run file places the hooks of its plugins") {
  ManifestData manifest;
  HookSpec steady = observer(Event::batch_end), rare = observer(Event::epoch_end);
  rare.cadence.every = "2ep";
  rare.before = {"console"};
  manifest.hooks = {steady, rare};
  config::SlotConfig slot;
  CHECK(participant_of(slot, manifest).hooks[1].cadence.every == "2ep");
  slot.hook.every = "5ba";
  slot.hook.priority = 70;
  slot.hook.before = {"ema"};
  slot.hook.after = {"swa"};
  const std::vector<HookSpec> placed = participant_of(slot, manifest).hooks;
  CHECK(placed[0].cadence.every.empty());  // it had none
  CHECK(placed[1].cadence.every == "5ba");
  CHECK(placed[0].priority == 70);
  CHECK(placed[1].before == Names{"console", "ema"});
  CHECK(placed[1].after == Names{"swa"});
}

TEST_CASE("the digest of an order changes with the order, and with nothing else") {
  const auto digest = [](const Names& ids, int priority = 50, const std::string& every = "",
                         Regions writes = {}) {
    Plugins run;
    for (const std::string& id : ids) {
      HookSpec hook = with_priority(observer(Event::batch_end), id == "b" ? priority : 50);
      hook.cadence.every = every;
      hook.writes = writes;
      run.add(id, {hook});
    }
    return run.order().digest(run.participants());
  };
  const std::string plain = digest({"a", "b"});
  CHECK(plain.size() == 16);
  CHECK(digest({"a", "b"}) == plain);
  CHECK(digest({"a", "b"}, 60) == plain);  // the same order for another reason
  CHECK(digest({"b", "a"}) != plain);
  CHECK(digest({"a", "b"}, 40) != plain);
  CHECK(digest({"a", "b"}, 50, "2ba") != plain);
  CHECK(digest({"a", "b"}, 50, "", Region::metrics) != plain);
}

}  // namespace order_tests
