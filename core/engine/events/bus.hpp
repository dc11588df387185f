// Fires events. The bus is one immutable table of plain calls, built between safe points: firing takes no
// lock, no allocation and no string; an event without a subscriber costs a load and a branch.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
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

/// A plugin as the bus knows it. The run owns it; it outlives the bus.
struct Subscriber {
  Participant participant;
  std::string slot;     ///< place in the run file, for messages: "hooks[0]"
  std::string address;  ///< the name by which checkpoints and users know it: "hooks.ema"
  void* self = nullptr;
  bool disable_on_error = false;

  /// From the next rebuild on it is not called any more; of several reasons the first one stays. Loop thread.
  void disable(std::string why) {
    if (!disabled) error = std::move(why);
    std::atomic_ref(disabled).store(true, std::memory_order_relaxed);  // a swap in preparation may read it
  }
  bool disabled = false;
  // Written by the bus:
  bool left_out = false;  ///< the rebuild that leaves it out is over
  std::string error;      ///< why it is disabled
  std::array<double, event_count>
      sampled_seconds{};  ///< inside its hooks at each event, on the fires that were timed
};

/// Looks at the state of the run before and after hooks: checks that what they declared to write is sound,
/// and that they wrote nothing else.
class Inspector {
 public:
  virtual ~Inspector() = default;
  /// Returns whether it looks at hooks of an event that declare `writes`; asked when the order is made.
  virtual bool wants(Event event, Regions writes) const = 0;
  virtual void before(Regions writes) = 0;
  /// Throws Objection. Not called if the hook threw.
  virtual void after(Regions writes) = 0;
};

/// The reaction to a hook that an inspector objects to, whatever its slot says of errors.
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
  /// `subscribers` are in the order of the config. Throws ConfigError for an order problem (which validation
  /// has reported before) or for a cadence that this run cannot count.
  Bus(std::vector<Subscriber*> subscribers, const RunScale& scale, int ranks = 1);
  ~Bus();
  Bus(const Bus&) = delete;
  Bus& operator=(const Bus&) = delete;

  /// Calls the hooks of an event in order. `context` must be set up for the event. Throws BlamedError. A hook
  /// to be disabled on error is only noted, and its neighbours are called. All hooks of a closing event are
  /// called before their first error is thrown, so that every bracket that was opened is closed.
  template <class Context>
  void fire(Event event, Context& context) {
    trail_.add(event, context.step_number());  // also at events that no hook hears
    const Calls& calls = table_.calls[static_cast<std::size_t>(event)];
    if (!calls.fast.empty()) [[unlikely]]
      dispatch(calls, context.enter(event));
  }

  /// While on, the time in each hook is measured; off by default, as two clock reads cost more than a call.
  void set_timing(bool on) { timing_ = on; }

  /// Has `inspectors` look at all hooks that they want, in this order. They outlive the bus.
  void inspect(std::vector<Inspector*> inspectors);
  /// Has `inspector` look at a sample: all hooks while set_sampling is on; hooks that are called more rarely
  /// than each step at their first calls and some later ones. It outlives the bus.
  void sample(Inspector* inspector);
  void set_sampling(bool on) { sampling_ = on; }
  /// Lends each call a context of its own, so that use of a kept one is noticed within later calls, too.
  void lend_copies();

  /// Returns true if plugins threw since the last rebuild and are to be disabled for it; usually none.
  bool stale() const { return stale_; }
  /// Leaves those plugins out from now on, and returns them. Only between steps.
  std::vector<const Subscriber*> rebuild();

  /// Returns true if any hook is called at an event.
  bool heard(Event event) const { return !table_.calls[static_cast<std::size_t>(event)].all.empty(); }
  /// The same at the context's step: a cadence may leave the hooks out.
  bool heard(Event event, const StepContext& context) const;

  const Order& order() const { return table_.order; }
  /// Returns the last events that were fired.
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
    bool by_epoch;  ///< it counts epochs, not steps
    bool inspected;
    bool rare;                        ///< its event is not part of a step, or it has a cadence
    std::int64_t every, start, end;   ///< `every` 0: always
    mutable std::uint32_t calls = 0;  ///< how often a rare one was called
  };
  /// The part of a call that most calls need: two fit a cache line, as all are cold after a training step.
  struct FastCall {
    void (*function)(void*, StepContext&);  ///< null if the call has a cadence or is inspected
    void* self;
    const StepContext::Caller* caller;
    const Subscriber* who;
  };
  struct Calls {
    std::vector<Call> all;
    std::vector<FastCall> fast;  ///< the same, in the same order
  };

 public:
  /// The calls at each event: made beside the run, and taken into use at once.
  struct Table {
    Order order;
    std::array<Calls, event_count> calls;
    std::vector<Subscriber*> places;  ///< in the order of the config
    std::int64_t rebuilds = 0;        ///< the bus's count when this was made; who is disabled later is in it
  };
  /// Returns the table of subscribers in their places; each has what `fillings` has at the same index once
  /// that is moved there. Any thread, while those in use stay in their places. Throws as the constructor does.
  Table table_of(const std::vector<Subscriber*>& places,
                 const std::vector<const Subscriber*>& fillings) const;
  /// Takes a table into use once its subscribers are in their places; `table` becomes the one before. Only
  /// between steps.
  void exchange(Table& table);

  /// Calls one plugin's hooks of an event, whether it is in the table or not: used for plugins that a swap
  /// brings or removes. Throws BlamedError.
  template <class Context>
  void call_alone(const Subscriber& who, Event event, Context& context) {
    call_hooks_of(who, context.enter(event));
  }

 private:
  void dispatch(const Calls& calls, StepContext& context);
  void call_hooks_of(const Subscriber& who, StepContext& context);
  void call_in_full(const Call& call, StepContext& context);
  bool sampled(const Call& call) const;
  bool due(const Call& call, const StepContext& context) const;
  void failed(const Call& call, StepContext& context, const std::exception* error);
  [[noreturn]] void throw_pending();

  bool wanted(Event event, Regions writes) const;
  Call make_call(const Subscriber& who, Event event, const HookSpec& spec) const;
  Table table_of(const std::vector<Subscriber*>& places) const {
    return table_of(places, {places.begin(), places.end()});
  }

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
