// The event bus (events.md, rules 1, 3, 6 and 12) with hooks that write down what they see.
#include "core/engine/events/bus.hpp"
#include "core/runfile/hook_order.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <thread>

#include "core/engine/train/loop_context.hpp"
#include "support/hooks.hpp"

namespace bus_tests {

using namespace trainyard;
using namespace trainyard::events;
using Catch::Matchers::Contains;
using test::FreeHook;
using train::LoopContext;
using Lines = std::vector<std::string>;

namespace {

constexpr RunScale scale{.steps_per_epoch = 4,
                         .samples_per_epoch = 30,
                         .samples_per_step = 8,
                         .tokens_per_sample = 0,
                         .total_steps = 20};

Bus bus_of(std::initializer_list<FreeHook*> hooks) {
  std::vector<Subscriber*> subscribers;
  for (FreeHook* hook : hooks) subscribers.push_back(&hook->subscriber);
  return Bus(std::move(subscribers), scale);
}

/// What `fire` throws: its class and its message.
std::pair<ExitCode, std::string> thrown(Bus& bus, Event event, LoopContext& context) {
  try {
    bus.fire(event, context);
  } catch (const BlamedError& error) {
    return {error.code(), error.what()};
  }
  return {ExitCode::done, ""};
}

}  // namespace

TEST_CASE("hooks are called in order, each with the context of the event") {
  Lines lines;
  const auto note = [&](const std::string& who) {
    return [&lines, who](StepContext& context) {
      lines.push_back(who + " " + std::string(name(context.event())) + " " +
                      std::to_string(context.step_number()));
    };
  };
  FreeHook io("io"), watcher("watcher"), writer("writer");
  io.on(Event::batch_end, note("io")).phase = Phase::sink;
  watcher.on(Event::batch_end, note("watcher"));
  writer.on(Event::batch_end, note("writer"), Region::hyper);
  Bus bus = bus_of({&io, &watcher, &writer});
  LoopContext context;
  context.number_ = 7;
  bus.fire(Event::batch_end, context);
  bus.fire(Event::batch_start, context);  // nobody
  CHECK(lines == Lines{"writer batch_end 7", "watcher batch_end 7", "io batch_end 7"});
}

TEST_CASE("calls follow the order of the run file, wherever the objects lie") {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    Lines lines, expected;
    std::vector<std::unique_ptr<FreeHook>> made(8);
    std::vector<std::size_t> by_birth(made.size());
    for (std::size_t i = 0; i < by_birth.size(); ++i) by_birth[i] = i;
    std::shuffle(by_birth.begin(), by_birth.end(), random);
    for (const std::size_t i : by_birth) {
      made[i] = std::make_unique<FreeHook>("p" + std::to_string(i));
      made[i]->on(Event::batch_end, [&lines, i](StepContext&) { lines.push_back(std::to_string(i)); });
    }
    std::vector<Subscriber*> subscribers;
    for (std::size_t i = 0; i < made.size(); ++i) {
      subscribers.push_back(&made[i]->subscriber);
      expected.push_back(std::to_string(i));
    }
    Bus bus(std::move(subscribers), scale);
    LoopContext context;
    bus.fire(Event::batch_end, context);
    REQUIRE(lines == expected);
  }
}

TEST_CASE("cadences are tested by the host") {
  struct Case {
    std::string every, start, end;
    std::vector<int> fires;  // of 20 steps
  };
  const Case cases[] = {
      {"", "", "", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}},
      {"6ba", "", "", {6, 12, 18}},
      {"5ba", "2ba", "", {2, 7, 12, 17}},
      {"5ba", "2ba", "12ba", {2, 7}},
      {"", "18ba", "", {18, 19, 20}},
      {"", "", "3ba", {1, 2}},
      {"1ep", "", "", {4, 8, 12, 16, 20}},
      {"50%", "", "", {10, 20}},
      {"8sp", "", "3ba", {1, 2}},
      {"60sp", "", "", {8, 16}},
  };
  for (const Case& each : cases) {
    INFO("every \"" << each.every << "\" start \"" << each.start << "\" end \"" << each.end << '"');
    std::vector<int> fires;
    FreeHook hook("hook");
    hook.on(Event::batch_end,
            [&](StepContext& context) { fires.push_back(static_cast<int>(context.step_number())); })
        .cadence = {each.every, each.start, each.end};
    Bus bus = bus_of({&hook});
    LoopContext context;
    for (context.number_ = 1; context.number_ <= 20; ++context.number_) bus.fire(Event::batch_end, context);
    CHECK(fires == each.fires);
  }
  SECTION("epochs are counted at the events of epochs") {
    std::vector<std::int64_t> fires;
    FreeHook hook("hook");
    const auto note = [&](StepContext& context) { fires.push_back(context.clock().epoch); };
    hook.on(Event::epoch_start, note).cadence.every = "2ep";
    hook.on(Event::epoch_end, note).cadence.every = "2ep";
    Bus bus = bus_of({&hook});
    LoopContext context;
    for (context.clock_.epoch = 0; context.clock_.epoch < 5; ++context.clock_.epoch) {
      bus.fire(Event::epoch_start, context);
      context.number_ += 4;
      bus.fire(Event::epoch_end, context);
    }
    CHECK(fires == std::vector<std::int64_t>{1, 1, 3, 3});
  }
  SECTION("the run file's replaces the manifest's, and places hooks") {
    ManifestData manifest;
    manifest.hooks.resize(2);
    manifest.hooks[0].cadence.every = "1ba";
    manifest.hooks[1].after = {"swa"};  // closes a bracket: no cadence, and gets none
    const std::vector<HookSpec> hooks =
        config::participant_of(
            {.hook = {.every = "10ba", .priority = 20, .before = {"clip"}, .after = {"ema"}}}, manifest)
            .hooks;
    CHECK(hooks[0].cadence.every == "10ba");
    CHECK(hooks[1].cadence.every.empty());
    for (const HookSpec& hook : hooks) {
      CHECK(hook.priority == 20);
      CHECK(hook.before == std::vector<std::string>{"clip"});
    }
    CHECK(hooks[1].after == std::vector<std::string>{"swa", "ema"});
  }
  SECTION("what cannot be counted is refused") {
    for (const auto& [every, message] :
         {std::pair{"5s", "[hooks.hook] at batch_end: \"5s\" cannot be"},
          std::pair{"0ba", "less than one step"}, std::pair{"often", "is not a duration"},
          std::pair{"9tok", "cannot be counted in steps"}}) {
      FreeHook hook("hook");
      hook.on(Event::batch_end, [](StepContext&) {}).cadence.every = every;
      CHECK_THROWS_WITH(bus_of({&hook}), Contains(message));
    }
  }
}

TEST_CASE("a hook writes only what it declared") {
  Batch batch;
  at::Tensor seen;
  const auto message = [&](Event event, Regions writes, std::function<void(StepContext&)> body) {
    FreeHook hook("ema");
    hook.on(event, std::move(body), writes);
    Bus bus = bus_of({&hook});
    LoopContext context;
    context.batch_ = &batch;
    context.output_ = context.loss_ = at::Tensor();
    return thrown(bus, event, context).second;
  };
  const auto change = [](StepContext& context) { context.mutable_batch().weight = 2.0; };
  CHECK(message(Event::batch_start, Region::batch, change).empty());
  CHECK(batch.weight == 2.0);
  CHECK_THAT(message(Event::batch_start, Region::hyper, change),
             Contains("the hook writes region batch at batch_start but did not declare it"));
  CHECK_THAT(message(Event::batch_start, {}, change), Contains(".writes(Region::batch)"));
  CHECK_THAT(message(Event::after_forward, {}, [](StepContext& c) { c.mutable_output(); }),
             Contains("region outputs"));
  CHECK_THAT(message(Event::batch_end, {}, [](StepContext& c) { c.request(Control::stop_run, "why"); }),
             Contains("region control"));
  CHECK_THAT(message(Event::batch_start, {}, [](StepContext& c) { c.network(); }),
             Contains("there is no model at batch_start"));
  CHECK_THAT(message(Event::after_loss, {}, [](StepContext& c) { c.loss(); }), Contains("there is no loss"));

  SECTION("and only while it runs") {
    FreeHook first("first"), second("second");
    first.on(
        Event::batch_start, [](StepContext&) {}, Region::batch);
    second.on(Event::batch_start, change);
    Bus bus = bus_of({&first, &second});
    LoopContext context;
    context.batch_ = &batch;
    CHECK_THAT(thrown(bus, Event::batch_start, context).second, Contains("second at batch_start"));
    CHECK_THROWS_AS(context.mutable_batch(), PluginError);  // nor afterwards
  }
}

TEST_CASE("control bits name who asked, and are taken once") {
  Lines asked;
  FreeHook hook("patience");
  hook.on(
      Event::batch_end,
      [](StepContext& context) {
        context.request(Control::stop_run, "no gain");
        context.request(Control::evaluate, "to be sure");
      },
      Region::control);
  Bus bus = bus_of({&hook});
  LoopContext context;
  context.on_request = [&](std::string_view who, Control control, std::string_view why) {
    asked.push_back(std::string(who) + " " + std::to_string(static_cast<int>(control)) + " " +
                    std::string(why));
  };
  bus.fire(Event::batch_end, context);
  CHECK(asked == Lines{"patience 16 no gain", "patience 32 to be sure"});
  CHECK(context.asked(Control::stop_run));
  CHECK(context.take(Control::stop_run));
  CHECK_FALSE(context.take(Control::stop_run));
  CHECK(context.take(Control::evaluate));
  CHECK_FALSE(context.asked(Control::skip_batch));
}

TEST_CASE("a request stands until it is taken or its own plugin takes it back, and is told once") {
  int told = 0;
  bool more = true;
  FreeHook one("one"), other("other");
  const auto body = [&](StepContext& context) {
    more ? context.request(Control::stop_run, "no gain") : context.withdraw(Control::stop_run);
  };
  one.on(Event::batch_end, body, Region::control);
  other.on(
      Event::batch_end, [](StepContext& context) { context.request(Control::stop_run, "time is up"); },
      Region::control);
  Bus bus = bus_of({&one, &other});
  LoopContext context;
  context.on_request = [&](std::string_view, Control, std::string_view) { ++told; };
  bus.fire(Event::batch_end, context);
  bus.fire(Event::batch_end, context);
  CHECK(told == 2);
  more = false;
  bus.fire(Event::batch_end, context);
  CHECK(context.asked(Control::stop_run));
  CHECK(context.requests().at("hooks.one") == 0);
  CHECK(context.take(Control::stop_run));
  CHECK_FALSE(context.asked(Control::stop_run));
}

TEST_CASE("an error names slot, plugin, event and step, and keeps its class") {
  const auto with = [](std::function<void(StepContext&)> body) {
    FreeHook hook("thrower");
    hook.on(Event::before_step, std::move(body));
    Bus bus = bus_of({&hook});
    LoopContext context;
    context.number_ = 12;
    return thrown(bus, Event::before_step, context);
  };
  using Thrown = std::pair<ExitCode, std::string>;
  const std::string where = "[hooks.thrower] thrower at before_step, step 12: ";
  CHECK(
      (with([](StepContext&) { throw DataError("bad row"); }) == Thrown{ExitCode::data, where + "bad row"}));
  CHECK((with([](StepContext&) { throw NumericError("NaN"); }) == Thrown{ExitCode::numeric, where + "NaN"}));
  CHECK((with([](StepContext&) { throw std::out_of_range("3"); }) == Thrown{ExitCode::plugin, where + "3"}));
  CHECK((with([](StepContext&) { throw 42; }) ==
         Thrown{ExitCode::plugin, where + "threw something that is no std::exception"}));
}

TEST_CASE("an error ends an opening event at once, and a closing one at its end") {
  Lines lines;
  FreeHook first("first"), bad("bad"), worse("worse"), last("last");
  const auto note = [&](const char* who) { return [&lines, who](StepContext&) { lines.push_back(who); }; };
  for (const Event event : {Event::batch_start, Event::batch_end}) {
    first.on(event, note("first"));
    bad.on(event, [](StepContext&) { throw DataError("bad"); });
    worse.on(event, [](StepContext&) { throw std::runtime_error("worse"); });
    last.on(event, note("last"));
  }
  Bus bus = bus_of({&first, &bad, &worse, &last});
  LoopContext context;
  CHECK_THAT(thrown(bus, Event::batch_start, context).second, Contains("bad at batch_start"));
  CHECK(lines == Lines{"first"});
  lines.clear();
  const auto [code, message] = thrown(bus, Event::batch_end, context);
  CHECK(code == ExitCode::data);
  CHECK_THAT(message, Contains("bad at batch_end"));  // the first of the two
  CHECK(lines == Lines{"first", "last"});
  lines.clear();
  CHECK_THAT(thrown(bus, Event::batch_start, context).second,
             Contains("bad at batch_start"));  // no leftovers
  CHECK(lines == Lines{"first"});
}

TEST_CASE("a hook that is to be disabled leaves at the next rebuild, its closing half included") {
  Lines lines;
  FreeHook fragile("fragile"), other("other");
  fragile.subscriber.disable_on_error = true;
  fragile.on(
      Event::batch_start,
      [&](StepContext& context) {
        lines.push_back("fragile start");
        if (context.step_number() == 2) throw std::runtime_error("broke");
      },
      Region::batch);
  fragile.on(
      Event::batch_end, [&](StepContext&) { lines.push_back("fragile end"); }, Region::hyper);
  for (const Event event : {Event::batch_start, Event::batch_end})
    other.on(event, [&](StepContext&) { lines.push_back("other"); });
  Bus bus = bus_of({&fragile, &other});
  LoopContext context;
  for (context.number_ = 1; context.number_ <= 3; ++context.number_) {
    bus.fire(Event::batch_start, context);
    bus.fire(Event::batch_end, context);
    CHECK(bus.stale() == (context.number_ == 2));
    if (!bus.stale()) continue;
    const auto gone = bus.rebuild();
    REQUIRE(gone.size() == 1);
    CHECK(gone[0] == &fragile.subscriber);
    CHECK(gone[0]->error == "[hooks.fragile] fragile at batch_start, step 2: broke");
    CHECK(bus.rebuild().empty());
  }
  const Lines step = {"fragile start", "other", "fragile end", "other"};
  Lines expected = step;
  expected.insert(expected.end(), step.begin(), step.end());
  expected.insert(expected.end(), {"other", "other"});
  CHECK(lines == expected);
}

TEST_CASE("time inside hooks is taken only when asked for") {
  FreeHook slow("slow"), quick("quick");
  slow.on(Event::batch_end, [](StepContext&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
  quick.on(Event::batch_end, [](StepContext&) {});
  Bus bus = bus_of({&slow, &quick});
  LoopContext context;
  const auto seconds = [](const FreeHook& hook) {
    return hook.subscriber.sampled_seconds[static_cast<std::size_t>(Event::batch_end)];
  };
  bus.fire(Event::batch_end, context);
  CHECK(seconds(slow) == 0.0);
  bus.set_timing(true);
  bus.fire(Event::batch_end, context);
  CHECK(seconds(slow) >= 0.002);
  CHECK(seconds(slow) > seconds(quick));
  const double before = seconds(slow);
  bus.set_timing(false);
  bus.fire(Event::batch_end, context);
  CHECK(seconds(slow) == before);
}

TEST_CASE("a bus refuses an order that breaks the rules") {
  FreeHook a("a"), b("b");
  for (FreeHook* hook : {&a, &b})
    hook->on(
        Event::before_step, [](StepContext&) {}, Region::grads);
  CHECK_THROWS_AS(bus_of({&a, &b}), ConfigError);
  CHECK_THROWS_WITH(bus_of({&a, &b}), Contains("\"a\" and \"b\" both write grads at before_step"));
}

}  // namespace bus_tests
