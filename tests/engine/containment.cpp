// Who is to blame: call frames, the last events, inspectors, requests, and the text of reports.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <random>

#include <trainyard/event.hpp>
#include "core/engine/events/signal_text.hpp"
#include "core/engine/events/where.hpp"
#include "core/engine/train/guard.hpp"
#include "core/engine/train/loop_context.hpp"
#include "support/hooks.hpp"

namespace containment_tests {

using namespace trainyard;
using namespace trainyard::events;
using Catch::Matchers::Contains;
using test::FreeHook;
using train::LoopContext;

namespace {

std::string here() {
  const Where found = where(call_frame);
  return found.slot == nullptr ? "host"
                               : std::string(found.slot) + "/" + found.plugin + (found.hook ? " hook" : "");
}

}  // namespace

TEST_CASE("the trail keeps the last hundred events, oldest to newest") {
  Trail trail;
  CHECK(trail.size() == 0);
  for (std::int64_t step = 1; step <= 1000; ++step) {
    trail.add(step % 2 == 0 ? Event::safe_point : Event::before_step, step);
    REQUIRE(trail.size() == std::min<std::int64_t>(step, Trail::length));
    for (std::uint32_t age = 0; age < trail.size(); ++age) {
      const std::int64_t expected = step - age;
      REQUIRE(trail.back(age).step == expected);
      REQUIRE(trail.back(age).event == (expected % 2 == 0 ? Event::safe_point : Event::before_step));
    }
  }
}

TEST_CASE("a call frame names the hook, else the innermost plugin, and is restored") {
  std::string outer, inner, after;
  FreeHook hook("ema");
  hook.on(Event::before_step, [&](StepContext&) {
    outer = here();
    {
      const CallScope scope("model.dropout", "gyro");
      inner = here();
    }
    after = here();
  });
  FreeHook thrower("thrower");
  thrower.on(Event::batch_end, [](StepContext&) { throw std::runtime_error("no"); });
  Bus bus({&hook.subscriber, &thrower.subscriber}, {});
  LoopContext context;
  context.number_ = 7;
  CHECK(here() == "host");
  bus.fire(Event::before_step, context);
  CHECK(outer == "hooks.ema/ema hook");
  CHECK(inner == outer);
  CHECK(after == outer);
  CHECK(here() == "host");
  {
    const CallScope model("model", "mlp");
    {
      const CallScope dropout("model.dropout", "gyro");
      CHECK(here() == "model.dropout/gyro");
    }
    CHECK(here() == "model/mlp");
  }
  CHECK(newest_event(call_frame)->event == Event::before_step);
  CHECK(newest_event(call_frame)->step == 7);
  CHECK_THROWS(bus.fire(Event::batch_end, context));
  CHECK(here() == "host");

  SECTION("also where a plugin fires events itself") {
    const CallScope executor("executor", "pipelined");
    bus.fire(Event::before_step, context);
    CHECK(outer == "hooks.ema/ema hook");
    CHECK(here() == "executor/pipelined");
  }
  SECTION("calls one after another differ, a call within another is the same one") {
    const Where before = [] {
      const CallScope scope("optimizer", "adam");
      return where(call_frame);
    }();
    const CallScope scope("optimizer", "adam");
    const Where now = where(call_frame);
    CHECK_FALSE(now == before);
    { const CallScope nested("loss", "mse"); }
    CHECK(where(call_frame) == now);
  }
  SECTION("an error in a call of the loop names the event before it") {
    const config::SlotConfig slot{.slot = "optimizer", .kind = "optimizer", .type = "adam"};
    try {
      train::guarded(slot, 7, []() -> int { throw std::runtime_error("no"); });
      FAIL("it was swallowed");
    } catch (const BlamedError& error) {
      CHECK(error.blame().slot == "optimizer");
      CHECK(error.blame().plugin == "adam");
      CHECK(error.blame().event == Event::batch_end);
      CHECK(error.blame().step == 7);
      CHECK_FALSE(error.blame().hook);
    }
    CHECK(here() == "host");
  }
}

TEST_CASE("what a hook throws is laid at its door where it is called alone, too, whatever it is") {
  FreeHook hook("odd");
  hook.on(Event::swap_in, [](StepContext&) { throw 5; });
  Bus bus({&hook.subscriber}, {});
  LoopContext context;
  CHECK_THROWS_WITH(bus.call_alone(hook.subscriber, Event::swap_in, context),
                    Contains("odd at swap_in") && Contains("no std::exception"));
}

TEST_CASE("a bus that is gone is not looked at") {
  {
    Bus bus({}, {});
    LoopContext context;
    bus.fire(Event::init, context);
    CHECK(newest_event(call_frame));
  }
  CHECK_FALSE(newest_event(call_frame));
}

TEST_CASE("what inspectors object to is answered as they say, whatever the slot says") {
  struct Picky final : Inspector {
    bool wants(Event event, Regions) const override { return event == Event::after_step; }
    void before(Regions) override { ++calls; }
    void after(Regions writes) override {
      if (writes.contains(Region::model)) throw Objection(ExitCode::numeric, answer, "wrote NaN");
    }
    Answer answer = Answer::abort;
    int calls = 0;
  } picky;
  FreeHook bad("bad"), good("good");
  int good_calls = 0;
  for (const Event event : {Event::after_step, Event::batch_end})
    bad.on(
        event, [](StepContext&) {}, event == Event::after_step ? Regions(Region::model) : Regions());
  good.on(Event::after_step, [&](StepContext&) { ++good_calls; });
  Bus bus({&bad.subscriber, &good.subscriber}, {});
  LoopContext context;
  context.number_ = 3;
  bus.fire(Event::after_step, context);
  CHECK(picky.calls == 0);
  bus.inspect({&picky});
  bus.fire(Event::batch_end, context);
  CHECK(picky.calls == 0);  // it did not want that
  good_calls = 0;

  SECTION("abort, though the slot says disable") {
    bad.subscriber.disable_on_error = true;
    try {
      bus.fire(Event::after_step, context);
      FAIL("nobody objected");
    } catch (const BlamedError& error) {
      CHECK(error.code() == ExitCode::numeric);
      CHECK_FALSE(error.blame().rollback);
      CHECK(error.blame().plugin == "bad");
      CHECK(error.blame().event == Event::after_step);
      CHECK(error.blame().step == 3);
      CHECK(error.blame().hook);
    }
  }
  SECTION("rollback") {
    picky.answer = Answer::rollback;
    try {
      bus.fire(Event::after_step, context);
      FAIL("nobody objected");
    } catch (const BlamedError& error) {
      CHECK(error.blame().rollback);
    }
  }
  SECTION("disable, though the slot says abort") {
    picky.answer = Answer::disable;
    bus.fire(Event::after_step, context);
    CHECK(good_calls == 1);
    REQUIRE(bus.stale());
    CHECK(bus.rebuild().front() == &bad.subscriber);
    const int before = picky.calls;
    bus.fire(Event::after_step, context);
    CHECK(picky.calls == before + 1);  // the other one; a rebuild keeps the inspectors
  }
}

TEST_CASE("an event takes the requests of its line in the table, and no others") {
  for (std::size_t e = 0; e < event_count; ++e) {
    const auto event = static_cast<Event>(e);
    INFO(name(event));
    CHECK((controls(event) != 0) == writable(event).contains(Region::control));
    for (int bit = 0; bit < control_count; ++bit) {
      const auto control = static_cast<Control>(1u << bit);
      INFO(control_names[bit]);
      if (!writable(event).contains(Region::control)) continue;
      FreeHook hook("asker");
      hook.on(
          event, [&](StepContext& context) { context.request(control, "why not"); }, Region::control);
      Bus bus({&hook.subscriber}, {});
      LoopContext context;
      if ((controls(event) & 1u << bit) != 0) {
        CHECK_NOTHROW(bus.fire(event, context));
        CHECK(context.asked(control));
        continue;
      }
      CHECK_THROWS_WITH(bus.fire(event, context),
                        Contains("asks for " + std::string(control_names[bit]) + " at " +
                                 std::string(name(event)) + ", which does not take it") &&
                            Contains("may ask for: " + controls_text(controls(event))));
      CHECK_FALSE(context.asked(control));
    }
  }
}

TEST_CASE("the text of a report is JSON whatever it quotes") {
  auto text = std::make_unique<report::SignalText>();
  text->number(-5).raw(" ").number(std::numeric_limits<std::int64_t>::min()).raw(" ").hex(0xdeadbeef);
  CHECK(text->view() == "-5 -9223372036854775808 0xdeadbeef");
  text->clear();
  text->quoted(static_cast<const char*>(nullptr));
  CHECK(text->view() == "null");
  std::mt19937 random(3);
  for (int round = 0; round < 5000; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % (round % 2 == 0 ? 256 : 128));
    if (round % 5 == 0) bytes += "Zürich 東京 😀";
    text->clear();
    text->quoted(std::string_view(bytes));
    const auto json = nlohmann::json::parse(text->view(), nullptr, false);
    INFO(text->view());
    REQUIRE(json.is_string());
    if (round % 2 == 1) REQUIRE(json.get<std::string>() == bytes);
  }
  text->clear();
  text->quoted(std::string(100'000, '"').c_str(), 100);
  CHECK(text->size() == 202);
}

TEST_CASE("a sample of calls is looked at: all of a step, and of rare ones the first") {
  struct Counting final : Inspector {
    bool wants(Event, Regions) const override { return true; }
    void before(Regions) override { ++calls; }
    void after(Regions) override {}
    int calls = 0;
  } counting;
  FreeHook steps("steps"), seldom("seldom");
  steps.on(Event::after_step, [](StepContext&) {});
  SECTION("by steps") {
    Bus bus({&steps.subscriber}, {});
    LoopContext context;
    bus.sample(&counting);
    bus.fire(Event::after_step, context);
    CHECK(counting.calls == 0);
    bus.set_sampling(true);
    bus.fire(Event::after_step, context);
    CHECK(counting.calls == 1);
    bus.set_sampling(false);
    bus.fire(Event::after_step, context);
    CHECK(counting.calls == 1);
  }
  SECTION("of an event of no step, and of a hook with a cadence") {
    const Event event = GENERATE(Event::eval_start, Event::after_step);
    HookSpec& spec = seldom.on(event, [](StepContext&) {});
    if (event == Event::after_step) spec.cadence.every = "3ba";
    Bus bus({&seldom.subscriber, &steps.subscriber}, {.total_steps = 3000});
    LoopContext context;
    bus.sample(&counting);
    std::vector<std::int64_t> looked;
    for (context.number_ = 3; looked.size() < 3 && context.number_ < 3000; context.number_ += 3) {
      const int before = counting.calls;
      bus.fire(event, context);
      if (counting.calls > before) looked.push_back(context.number_ / 3);
    }
    CHECK(looked == std::vector<std::int64_t>{1, 2, 257});
  }
}

TEST_CASE("a context that was kept is of no use") {
  const StepContext* kept = nullptr;
  std::string later;
  FreeHook keeps("keeps"), uses("uses");
  keeps.on(Event::before_step, [&](StepContext& context) { kept = &context; });
  uses.on(Event::after_step, [&](StepContext& context) {
    CHECK(context.micros() == 4);
    try {
      later = std::to_string(kept->micros());
    } catch (const PluginError& error) {
      later = error.what();
    }
  });
  Bus bus({&keeps.subscriber, &uses.subscriber}, {});
  LoopContext context;
  context.micros_ = 4;
  bus.fire(Event::before_step, context);
  const auto gone = Contains("uses a context after the hook that it was lent to has returned");
  REQUIRE_THROWS_WITH(kept->micros(), gone);
  REQUIRE_THROWS_WITH(kept->network(), gone);
  CHECK(kept->event() == Event::before_step);
  bus.fire(Event::after_step, context);
  CHECK(later == "4");  // not told apart from the one of this hook
  SECTION("each call is lent a copy of its own where all is looked at") {
    struct All final : Inspector {
      bool wants(Event, Regions) const override { return true; }
      void before(Regions) override {}
      void after(Regions) override {}
    } all;
    bus.inspect({&all});
    bus.lend_copies();
    uses.on(Event::micro_end, [](StepContext& lent) {
      const int micros = lent.micros();
      CHECK(micros == 4);
    });
    bus.fire(Event::before_step, context);
    REQUIRE_THROWS_WITH(kept->micros(), gone);
    bus.fire(Event::after_step, context);
    CHECK_THAT(later, gone);
  }
}

}  // namespace containment_tests
