// What firing an event costs: nanoseconds with no subscriber, one, and ten, each of another plugin.
#include <cstring>
#include <deque>

#include "core/engine/events/bus.hpp"
#include "core/engine/train/loop_context.hpp"
#include "tools/bench/contest.hpp"

namespace trainyard::bench {
namespace {

struct Counting {
  std::int64_t calls = 0;
};

/// Hooks of the SDK are made like this one: a plain function that knows its object.
void count(void* self, StepContext&) {
  ++static_cast<Counting*>(self)->calls;
}

/// A bus whose after_step has so many subscribers; before_step has none.
class Rig {
 public:
  explicit Rig(int subscribers) : counts_(static_cast<std::size_t>(subscribers)) {
    HookSpec hook;
    hook.event = Event::after_step;
    hook.call = count;
    std::vector<events::Subscriber*> pointers;
    for (int i = 0; i < subscribers; ++i) {
      events::Subscriber& subscriber = subscribers_.emplace_back();
      subscriber.participant = {"counting" + std::to_string(i), "counting", {hook}};
      subscriber.self = &counts_[static_cast<std::size_t>(i)];
      pointers.push_back(&subscriber);
    }
    bus_ = std::make_unique<events::Bus>(std::move(pointers), RunScale{});
  }

  void fire(Event event, int times) {
    for (int i = 0; i < times; ++i) {
      bus_->fire(event, context_);
      asm volatile("" ::: "memory");  // every fire reads the bus again, as in the loop
    }
  }
  std::int64_t calls() const {
    std::int64_t calls = 0;
    for (const Counting& each : counts_) calls += each.calls;
    return calls;
  }

 private:
  std::vector<Counting> counts_;
  std::deque<events::Subscriber> subscribers_;
  std::unique_ptr<events::Bus> bus_;
  train::LoopContext context_;
};

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard;
  using namespace trainyard::bench;
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  const int rounds = quick ? 3 : 400, fires = 100'000;
  Rig none(0), one(1), ten(10);
  const std::vector<Contender> contenders = {
      {"an empty loop",
       [&] {
         for (int i = 0; i < fires; ++i) asm volatile("" ::: "memory");
       }},
      {"no subscriber (bar 1)", [&] { none.fire(Event::after_step, fires); }},
      {"no subscriber, others have some (bar 1)", [&] { ten.fire(Event::before_step, fires); }},
      {"one subscriber (bar 3)", [&] { one.fire(Event::after_step, fires); }},
      {"ten subscribers (bar 25)", [&] { ten.fire(Event::after_step, fires); }},
  };
  const std::vector<Times> times = contest(contenders, rounds);
  const std::int64_t expected = std::int64_t{rounds + 1} * fires;
  if (one.calls() != expected || ten.calls() != 10 * expected) {
    std::fprintf(stderr, "the bus made %ld and %ld calls instead of %ld and %ld\n", one.calls(), ten.calls(),
                 expected, 10 * expected);
    return 1;
  }
  print("Firing an event", "ns", 1e-9, fires, contenders, times);
}
