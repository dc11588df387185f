// Fires events. One immutable table of plain calls, built between safe points: no lock, no allocation, no
// string on the path; an event without a subscriber costs a load and a branch.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <trainyard/context.hpp>
#include <trainyard/duration.hpp>

#include "core/events/order.hpp"

namespace trainyard::events {

/// A plugin as the bus knows it. Owned by the run; outlives the bus.
struct Subscriber {
  Participant participant;
  std::string slot;  ///< place in the run file, for messages: "hooks[0]"
  void* self = nullptr;
  bool disable_on_error = false;
  // Written by the bus:
  bool disabled = false;         ///< it threw; not called any more after the next rebuild
  std::string error;             ///< what it threw
  double sampled_seconds = 0.0;  ///< inside its hooks, on the fires that were timed
};

/// A hook threw and the run stops: who, where, what.
class HookError : public Error {
 public:
  HookError(ExitCode code, const std::string& message) : Error(code, message) {}
};

class Bus {
 public:
  /// `subscribers` in config order. Throws ConfigError for an order problem (reported at validation before)
  /// or a cadence that this run cannot count.
  Bus(std::vector<Subscriber*> subscribers, const RunScale& scale);

  /// Calls the hooks of an event in order. `context` must be set up for it. Throws HookError; a hook that is
  /// to be disabled on error is noted instead and its neighbours run on. All hooks of a closing event run
  /// before the first error of theirs is thrown, so that every bracket that was opened is closed.
  template <class Context>
  void fire(Event event, Context& context) {
    const Span span = spans_[static_cast<std::size_t>(event)];
    if (span.begin != span.end) [[unlikely]]
      dispatch(event, span, context.enter(event));
  }

  /// While on, the time inside each hook is taken; off by default, as two clock reads cost more than a call.
  void set_timing(bool on) { timing_ = on; }

  /// Plugins that threw and were to be disabled for it, since the last rebuild; usually none.
  bool stale() const { return stale_; }
  /// Leaves those out from now on, and returns them. Only between steps.
  std::vector<const Subscriber*> rebuild();

  const Order& order() const { return order_; }

 private:
  struct Call {
    void (*function)(void*, StepContext&);
    void* self;
    const char* owner;
    Regions writes;
    std::int32_t subscriber;
    bool by_epoch;                   ///< counts epochs, not steps
    std::int64_t every, start, end;  ///< `every` 0: always
  };
  struct Span {
    std::uint32_t begin = 0, end = 0;
  };

  void dispatch(Event event, Span span, StepContext& context);
  void invoke_timed(const Call& call, StepContext& context);
  bool due(const Call& call, const StepContext& context) const;  ///< of a call with a cadence
  void failed(Event event, const Call& call, const StepContext& context, const std::exception* error);

  std::vector<Subscriber*> subscribers_;
  RunScale scale_;
  Order order_;
  std::array<Span, event_count> spans_{};
  std::vector<Call> calls_;
  bool timing_ = false;
  bool stale_ = false;
  std::string pending_;  ///< first error of a closing event, thrown once the bracket is closed
  ExitCode pending_code_ = ExitCode::plugin;
};

}  // namespace trainyard::events
