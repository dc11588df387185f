#include "core/engine/events/bus.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <mutex>
#include <set>
#include <utility>

#include "core/engine/events/call_frame.hpp"
#include "core/engine/events/spans.hpp"

namespace trainyard::events {
namespace {

/// Gives the host access to the part of a context that names the running hook.
struct Lend : StepContext {
  static void to(const Caller* caller, StepContext& context) { context.*(&Lend::caller_) = caller; }
  static void to_nobody(StepContext& context) { to(&nobody, context); }
  static const Clock& clock(const StepContext& context) { return context.*(&Lend::clock_); }
};

/// Returns true for an event that is not part of a step: its hooks are called seldom.
bool is_rare(Event event) {
  return event < Event::before_fetch || (event > Event::batch_end && event != Event::safe_point);
}

struct Resolved {
  std::int64_t steps;
  bool epochs;
};

Resolved resolve(const std::string& text, Event event, const Subscriber& who, const RunScale& scale) {
  const std::optional<Duration> duration = Duration::parse(text);
  const auto place = [&] { return "[" + who.slot + "] at " + std::string(name(event)); };
  if (!duration)
    throw ConfigError(place() + ": \"" + text + "\" is not a duration, e.g. \"100ba\" or \"2ep\"");
  const bool of_epochs = event == Event::epoch_start || event == Event::epoch_end;
  if (of_epochs && duration->unit == Duration::Unit::epochs)
    return {Duration{std::floor(duration->count), Duration::Unit::steps}.steps(scale).value(), true};
  const std::optional<std::int64_t> steps = duration->steps(scale);
  if (!steps)
    throw ConfigError(place() + ": \"" + text + "\" cannot be counted in steps in this run; use ba or ep");
  return {*steps, false};
}

/// Keeps the text for the life of the process, as a call may outlast the plugin that it came from.
const char* kept(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> texts;
  const std::lock_guard lock(mutex);
  return texts.insert(text).first->c_str();
}

}  // namespace

/// The contexts that are lent to calls in turn, each a copy of the loop's for the length of the call.
class Lending {
 public:
  template <class Call>
  void lend(StepContext& own, Call&& call) {
    Copy& copy = copies_[next_++ % copies_.size()];
    struct Return {
      StepContext& own;
      Copy& copy;
      ~Return() {
        own = copy;
        static_cast<StepContext&>(copy) = empty();
        Lend::to_nobody(copy);
      }
    };
    static_cast<StepContext&>(copy) = own;
    const Return back{own, copy};
    call(static_cast<StepContext&>(copy));
  }

 private:
  struct Copy : StepContext {
    Copy() = default;  // so that it is no aggregate
  };
  static const StepContext& empty() {
    static const Copy none{};
    return none;
  }

  std::array<Copy, 256> copies_;
  std::size_t next_ = 0;
};

Bus::Bus(std::vector<Subscriber*> subscribers, const RunScale& scale, int ranks)
    : scale_(scale), ranks_(ranks) {
  table_.places = std::move(subscribers);
  rebuild();
  call_frame.bus = this;
}

Bus::~Bus() {
  const Bus* self = this;
  call_frame.bus.compare_exchange_strong(self, nullptr);
  spans.forget(this);
}

bool Bus::wanted(Event event, Regions writes) const {
  return std::any_of(inspectors_.begin(), inspectors_.end(),
                     [&](const Inspector* each) { return each->wants(event, writes); });
}

void Bus::inspect(std::vector<Inspector*> inspectors) {
  inspectors_ = std::move(inspectors);
  table_ = table_of(table_.places);
}

void Bus::sample(Inspector* inspector) {
  sampler_ = inspector;
}

void Bus::lend_copies() {
  lending_ = std::make_unique<Lending>();
}

std::vector<const Subscriber*> Bus::rebuild() {
  stale_ = false;
  std::vector<const Subscriber*> disabled;
  for (Subscriber* each : table_.places)
    if (each->disabled && !std::exchange(each->left_out, true)) disabled.push_back(each);
  ++rebuilds_;
  table_ = table_of(table_.places);
  return disabled;
}

void Bus::exchange(Table& table) {
  if (table.rebuilds != rebuilds_) table = table_of(table.places);
  std::swap(table_, table);
}

Bus::Table Bus::table_of(const std::vector<Subscriber*>& places,
                         const std::vector<const Subscriber*>& fillings) const {
  Table table;
  table.places = places;
  table.rebuilds = rebuilds_;       // read ahead of the subscribers that rebuilds change
  std::vector<std::size_t> called;  // indices of those that are not disabled
  std::vector<Participant> participants;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (std::atomic_ref(const_cast<bool&>(fillings[i]->disabled)).load(std::memory_order_relaxed)) continue;
    called.push_back(i);
    participants.push_back(fillings[i]->participant);
  }
  table.order = make_order(participants, ranks_);
  if (!table.order.problems.empty()) throw ConfigError(table.order.problems.front().message);
  for (std::size_t e = 0; e < event_count; ++e) {
    const auto event = static_cast<Event>(e);
    for (const Place& place : table.order.places[e]) {
      const std::size_t i = called[place.participant];
      Call call = make_call(*fillings[i], event, fillings[i]->participant.hooks[place.hook]);
      call.who = places[i];
      table.calls[e].all.push_back(call);
    }
    for (const Call& call : table.calls[e].all)
      table.calls[e].fast.push_back({.function = call.inspected || call.rare ? nullptr : call.function,
                                     .self = call.self,
                                     .caller = &call.caller,
                                     .who = call.who});
  }
  return table;
}

Bus::Call Bus::make_call(const Subscriber& who, Event event, const HookSpec& spec) const {
  const std::string& every = spec.cadence.every;
  Call call{.function = spec.call,
            .self = who.self,
            .caller = {kept(who.participant.id), spec.writes, kept(who.address)},
            .who = nullptr,
            .by_epoch = false,
            .inspected = wanted(event, spec.writes),
            .rare = is_rare(event),
            .every = 0,
            .start = 1,
            .end = std::numeric_limits<std::int64_t>::max()};
  const auto count = [&](const std::string& text, std::int64_t fallback) {
    if (text.empty()) return fallback;
    const Resolved resolved = resolve(text, event, who, scale_);
    call.by_epoch = resolved.epochs;
    return resolved.steps;
  };
  const bool bounded = !spec.cadence.start.empty() || !spec.cadence.end.empty();
  call.every = count(every, bounded ? 1 : 0);
  call.start = count(spec.cadence.start, 1);
  call.end = count(spec.cadence.end, call.end);
  if (call.every == 0 && !every.empty())
    throw ConfigError("[" + who.slot + "] every = \"" + every + "\" is less than one step");
  // Without a cadence a hook is always called; with one, from `start` on, or from its first multiple.
  if (!every.empty() && spec.cadence.start.empty()) call.start = call.every;
  call.rare = call.rare || call.every != 0;
  return call;
}

void Bus::call_hooks_of(const Subscriber& who, StepContext& context) {
  const Event event = context.event();
  HooksScope frame;
  for (const HookSpec& spec : who.participant.hooks) {
    if (spec.event != event) continue;
    Call call = make_call(who, event, spec);
    Subscriber attributed = who;  // the caller judges what it throws; it is never a reason to disable
    attributed.disable_on_error = false;
    call.who = &attributed;
    Lend::to(&call.caller, context);
    frame.enter(&attributed);
    try {
      call.function(call.self, context);
    } catch (const std::exception& error) {
      failed(call, context, &error);
    } catch (...) {
      failed(call, context, nullptr);
    }
    Lend::to_nobody(context);
  }
  if (pending_) throw_pending();
}

bool Bus::due(const Call& call, const StepContext& context) const {
  if (call.every == 0) return true;
  const std::int64_t n = call.by_epoch ? Lend::clock(context).epoch + 1 : context.step_number();
  return n >= call.start && n < call.end && (n - call.start) % call.every == 0;
}

bool Bus::heard(Event event, const StepContext& context) const {
  const std::vector<Call>& calls = table_.calls[static_cast<std::size_t>(event)].all;
  return std::any_of(calls.begin(), calls.end(), [&](const Call& call) { return due(call, context); });
}

void Bus::call_in_full(const Call& call, StepContext& context) {
  if (!due(call, context)) return;
  Lend::to(&call.caller, context);
  call_frame.hook.store(call.who, std::memory_order_relaxed);
  const bool sampled =
      sampler_ != nullptr && this->sampled(call) && sampler_->wants(context.event(), call.caller.writes);
  const auto each = [&](auto look) {
    if (call.inspected)
      for (Inspector* inspector : inspectors_) (inspector->*look)(call.caller.writes);
    if (sampled) (sampler_->*look)(call.caller.writes);
  };
  each(&Inspector::before);
  using clock = std::chrono::steady_clock;
  const auto before = timing_ ? clock::now() : clock::time_point();
  if (lending_ && (call.inspected || sampled))
    lending_->lend(context, [&](StepContext& lent) { call.function(call.self, lent); });
  else
    call.function(call.self, context);
  if (timing_) {
    call.who->sampled_seconds[static_cast<std::size_t>(context.event())] +=
        std::chrono::duration<double>(clock::now() - before).count();
    if (spans.on()) spans.record(Span::What::hook, name(context.event()), call.caller.address, before);
  }
  each(&Inspector::after);
}

/// Rare calls are counted, as the steps that are looked at may never be theirs.
bool Bus::sampled(const Call& call) const {
  constexpr std::uint32_t first = 2, one_in = 256;
  if (!call.rare) return sampling_;
  const std::uint32_t before = call.calls++;
  return before < first || before % one_in == 0;
}

void Bus::dispatch(const Calls& calls, StepContext& context) {
  const FastCall* const begin = calls.fast.data();
  const FastCall* const end = begin + calls.fast.size();
  const FastCall* call = begin;
  const SpanScope span(Span::What::event, name(context.event()).data(), timing_ && spans.on());
  HooksScope frame;
  // The try block is entered again only after a failure.
  while (call != end) {
    try {
      for (; call != end; ++call) {
        if (call->function == nullptr || timing_ || sampling_) [[unlikely]] {
          call_in_full(calls.all[static_cast<std::size_t>(call - begin)], context);
          continue;
        }
        Lend::to(call->caller, context);
        frame.enter(call->who);
        call->function(call->self, context);
      }
    } catch (const std::exception& error) {
      failed(calls.all[static_cast<std::size_t>(call - begin)], context, &error);
      ++call;
    } catch (...) {
      failed(calls.all[static_cast<std::size_t>(call - begin)], context, nullptr);
      ++call;
    }
  }
  Lend::to_nobody(context);
  if (pending_) [[unlikely]]
    throw_pending();
}

void Bus::failed(const Call& call, StepContext& context, const std::exception* error) {
  const Event event = context.event();
  Subscriber& who = *call.who;
  const std::string what = error ? error->what() : "threw something that is no std::exception";
  const auto* objection = dynamic_cast<const Objection*>(error);
  const auto* typed = dynamic_cast<const Error*>(error);
  BlamedError blamed(typed ? typed->code() : ExitCode::plugin,
                     {.slot = who.slot,
                      .plugin = who.participant.plugin,
                      .event = event,
                      .hook = true,
                      .step = context.step_number(),
                      .rollback = objection && objection->answer() == Answer::rollback},
                     what);
  if (objection ? objection->answer() == Answer::disable : who.disable_on_error) {
    who.disable(blamed.what());
    stale_ = true;
    return;
  }
  if (!pending_) pending_ = std::move(blamed);
  if (opening_of(event) != event) return;  // a closing event: its other hooks run on
  Lend::to_nobody(context);
  throw_pending();
}

/// A function of its own, as its code would make the frame of every dispatch larger.
[[gnu::noinline]] void Bus::throw_pending() {
  throw *std::exchange(pending_, std::nullopt);
}

}  // namespace trainyard::events
