// Fires events. One immutable table of plain calls, built between safe points: no lock, no allocation, no
// string on the path; an event without a subscriber costs a load and a branch.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/context.hpp>
#include <trainyard/duration.hpp>

#include "core/engine/events/blame.hpp"
#include "core/engine/events/trail.hpp"
#include "core/plugins/order.hpp"

namespace trainyard::events {

/// A plugin as the bus knows it. Owned by the run; outlives the bus.
struct Subscriber {
  Participant participant;
  std::string slot;     ///< place in the run file, for messages: "hooks[0]"
  std::string address;  ///< by which checkpoints and users know it: "hooks.ema"
  void* self = nullptr;
  bool disable_on_error = false;

  /// From the next rebuild on it is not called any more; the first reason holds. Loop thread.
  void disable(std::string why) {
    if (!disabled) error = std::move(why);
    std::atomic_ref(disabled).store(true, std::memory_order_relaxed);  // a swap in preparation may read it
  }
  bool disabled = false;
  // Written by the bus:
  bool left_out = false;  ///< that rebuild has come
  std::string error;      ///< why it is disabled
  std::array<double, event_count>
      sampled_seconds{};  ///< inside its hooks at each event, on the fires that were timed
};

/// Looks at the state of the run around hooks: that what they declared to write is sound, that they wrote
/// nothing else.
class Inspector {
 public:
  virtual ~Inspector() = default;
  /// Asked when the order is made: whether hooks of an event that declare `writes` are looked at.
  virtual bool wants(Event event, Regions writes) const = 0;
  virtual void before(Regions writes) = 0;
  /// Throws Objection. Not called where the hook threw.
  virtual void after(Regions writes) = 0;
};

/// What is to be done about a hook that an inspector objects to, whatever its slot says of errors.
enum class Answer : std::uint8_t {
  abort,
  disable,   ///< the inspector has undone the write; the run goes on without the plugin
  rollback,  ///< the run is to go back to a state from before
};

class Objection : public Error {
 public:
  Objection(ExitCode code, Answer answer, const std::string& message)
      : Error(code, message), answer_(answer) {}
  Answer answer() const noexcept { return answer_; }

 private:
  Answer answer_;
};

class Lending;

class Bus {
 public:
  /// `subscribers` in config order. Throws ConfigError for an order problem (reported at validation before)
  /// or a cadence that this run cannot count.
  Bus(std::vector<Subscriber*> subscribers, const RunScale& scale, int ranks = 1);
  ~Bus();
  Bus(const Bus&) = delete;
  Bus& operator=(const Bus&) = delete;

  /// Calls the hooks of an event in order. `context` must be set up for it. Throws BlamedError; a hook that is
  /// to be disabled on error is noted instead and its neighbours run on. All hooks of a closing event run
  /// before the first error of theirs is thrown, so that every bracket that was opened is closed.
  template <class Context>
  void fire(Event event, Context& context) {
    trail_.add(event, context.step_number());  // what the loop itself asks
    const Calls& calls = table_.calls[static_cast<std::size_t>(event)];
    if (!calls.fast.empty()) [[unlikely]]
      dispatch(calls, context.enter(event));
  }

  /// While on, the time inside each hook is taken; off by default, as two clock reads cost more than a call.
  void set_timing(bool on) { timing_ = on; }

  /// Has all hooks that the inspectors want looked at by them, in this order. They outlive the bus.
  void inspect(std::vector<Inspector*> inspectors);
  /// Has `inspector` look at a sample: at all hooks while set_sampling is on, and of those that are called more
  /// rarely than each step at the first calls and some later ones. It outlives the bus.
  void sample(Inspector* inspector);
  void set_sampling(bool on) { sampling_ = on; }
  /// Lends each call a context of its own, so that one that was kept is found out within later calls, too.
  void lend_copies();

  /// Plugins that threw and were to be disabled for it, since the last rebuild; usually none.
  bool stale() const { return stale_; }
  /// Leaves those out from now on, and returns them. Only between steps.
  std::vector<const Subscriber*> rebuild();

  /// Whether anything is called at an event.
  bool heard(Event event) const { return !table_.calls[static_cast<std::size_t>(event)].all.empty(); }
  /// The same where the context stands: a cadence may leave it out.
  bool heard(Event event, const StepContext& context) const;

  const Order& order() const { return table_.order; }
  /// The events fired so far.
  const Trail& trail() const { return trail_; }
  /// Calls `visit(id)` for the plugins that an event calls, in order. Takes no lock and no memory.
  template <class Visit>
  void each_hook(Event event, Visit&& visit) const {
    for (const Call& call : table_.calls[static_cast<std::size_t>(event)].all) visit(call.caller.id);
  }

 private:
  struct Call {
    void (*function)(void*, StepContext&);
    void* self;
    StepContext::Caller caller;
    Subscriber* who;
    bool by_epoch;  ///< counts epochs, not steps
    bool inspected;
    bool rare;                        ///< its event is none of a step, or it has a cadence
    std::int64_t every, start, end;   ///< `every` 0: always
    mutable std::uint32_t calls = 0;  ///< of a rare one
  };
  /// What most calls need of theirs: two to a cache line, as all are cold after a training step.
  struct FastCall {
    void (*function)(void*, StepContext&);  ///< null where the call has a cadence or is inspected
    void* self;
    const StepContext::Caller* caller;
    const Subscriber* who;
  };
  struct Calls {
    std::vector<Call> all;
    std::vector<FastCall> fast;  ///< the same, in the same order
  };

 public:
  /// Who is called at each event: made beside the run, and taken into use at once.
  struct Table {
    Order order;
    std::array<Calls, event_count> calls;
    std::int64_t rebuilds = 0;  ///< that the bus had behind it: who was disabled since is in it still
  };
  /// The table with others in the places of some subscribers. Any thread, while subscribers stay in their
  /// places. Throws ConfigError as the constructor does.
  Table table_with(const std::map<const Subscriber*, const Subscriber*>& replacements) const;
  /// Takes a table into use once its subscribers are in their places, and gives the one before. Only between
  /// steps.
  void exchange(Table& table);

  /// Calls the hooks that one plugin has for an event, in or out of the table: of one that comes or goes.
  /// Throws BlamedError.
  template <class Context>
  void call_alone(const Subscriber& who, Event event, Context& context) {
    call_hooks_of(who, context.enter(event));
  }

 private:
  void dispatch(const Calls& calls, StepContext& context);
  void call_hooks_of(const Subscriber& who, StepContext& context);
  void call_in_full(const Call& call, StepContext& context);
  void call_inspected(const Call& call, StepContext& context, bool sampled);
  bool sampled(const Call& call) const;
  bool due(const Call& call, const StepContext& context) const;
  void failed(const Call& call, StepContext& context, const std::exception* error);
  [[noreturn]] void throw_pending();

  bool wanted(Event event, Regions writes) const;
  Call make_call(const Subscriber& who, Event event, const HookSpec& spec) const;

  std::vector<Subscriber*> subscribers_;
  std::vector<Inspector*> inspectors_;
  Inspector* sampler_ = nullptr;
  bool sampling_ = false;
  std::unique_ptr<Lending> lending_;  ///< null: the loop's own context is lent
  RunScale scale_;
  int ranks_;
  Table table_;
  Trail trail_;
  bool timing_ = false;
  bool stale_ = false;
  std::atomic<std::int64_t> rebuilds_{0};
  std::optional<BlamedError> pending_;  ///< first error of a closing event, thrown once the bracket is closed
};

}  // namespace trainyard::events
