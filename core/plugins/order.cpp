#include "core/plugins/order.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <trainyard/event.hpp>

#include "lib/fnv1a.hpp"

namespace trainyard::events {
namespace {

/// A hook while its event is being sorted.
struct Candidate {
  std::size_t participant;
  std::size_t hook;
  const Participant* owner;
  const HookSpec* spec;
  std::optional<std::size_t> opened = {};  ///< place of its plugin among the transforms of the opening event
};

/// Why a hook must run before another. Computed for every pair of hooks of a phase, hence without text.
enum class Why : std::uint8_t { nothing, before, after, priority, opening };

Why edge(const Candidate& a, const Candidate& b) {
  const auto names = [](const std::vector<std::string>& list, const Participant& who) {
    return std::any_of(list.begin(), list.end(),
                       [&](const std::string& name) { return name == who.id || name == who.plugin; });
  };
  if (names(a.spec->before, *b.owner)) return Why::before;
  if (names(b.spec->after, *a.owner)) return Why::after;
  return a.spec->priority < b.spec->priority ? Why::priority : Why::nothing;
}

/// Returns why `a` is sorted before `b`. A closing event is sorted like its opening one and then reversed.
Why reason(const Candidate& a, const Candidate& b) {
  if (!a.opened || !b.opened || *a.opened == *b.opened) return edge(a, b);
  return *a.opened < *b.opened ? Why::opening : Why::nothing;
}

std::string words(Why why, const Candidate& a, const Candidate& b) {
  switch (why) {
    case Why::before: return a.owner->id + " declares before = " + b.owner->id;
    case Why::after: return b.owner->id + " declares after = " + a.owner->id;
    case Why::priority:
      return "priority " + std::to_string(a.spec->priority) + " before " + std::to_string(b.spec->priority);
    case Why::opening: return "order of the opening event";
    case Why::nothing: break;
  }
  return {};
}

/// Finds a cycle, in the order of its edges, by walking back along unsorted predecessors until one repeats.
std::vector<std::size_t> find_cycle(const std::vector<Candidate>& hooks, const std::vector<bool>& done) {
  std::vector<std::size_t> path;
  std::size_t at = static_cast<std::size_t>(std::find(done.begin(), done.end(), false) - done.begin());
  while (std::find(path.begin(), path.end(), at) == path.end()) {
    path.push_back(at);
    for (std::size_t from = 0; from < hooks.size(); ++from)
      if (!done[from] && from != at && reason(hooks[from], hooks[at]) != Why::nothing) {
        at = from;
        break;
      }
  }
  std::vector<std::size_t> cycle(std::find(path.begin(), path.end(), at), path.end());
  std::reverse(cycle.begin(), cycle.end());
  return cycle;
}

OrderProblem cycle_problem(const std::vector<Candidate>& hooks, const std::vector<std::size_t>& cycle,
                           Event event) {
  std::string names, reasons;
  for (std::size_t k = 0; k < cycle.size(); ++k) {
    const Candidate& from = hooks[cycle[k]];
    const Candidate& to = hooks[cycle[(k + 1) % cycle.size()]];
    names += from.owner->id + " -> ";
    reasons += (k == 0 ? "" : "; ") + words(reason(from, to), from, to);
  }
  return {"E318",
          "order cycle at " + std::string(name(event)) + ": " + names + hooks[cycle.front()].owner->id,
          reasons + ": drop one of them"};
}

/// Sorts one phase of one event topologically and stably; ties go by config order, then id.
std::vector<Candidate> sort_phase(std::vector<Candidate> hooks, Event event,
                                  std::vector<OrderProblem>& problems) {
  std::sort(hooks.begin(), hooks.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.participant, a.owner->id, a.hook) < std::tie(b.participant, b.owner->id, b.hook);
  });
  const auto first_of_two = [&](std::size_t i, std::size_t j) {
    return i != j && reason(hooks[i], hooks[j]) != Why::nothing;
  };
  std::vector<std::size_t> waits_for(hooks.size(), 0);  // number of unsorted predecessors
  std::set<std::size_t> free;
  for (std::size_t j = 0; j < hooks.size(); ++j) {
    for (std::size_t i = 0; i < hooks.size(); ++i) waits_for[j] += first_of_two(i, j);
    if (waits_for[j] == 0) free.insert(j);
  }
  std::vector<Candidate> sorted;
  std::vector<bool> done(hooks.size(), false);
  while (!free.empty()) {
    const std::size_t next = free.extract(free.begin()).value();
    done[next] = true;
    sorted.push_back(hooks[next]);
    for (std::size_t j = 0; j < hooks.size(); ++j)
      if (!done[j] && first_of_two(next, j) && --waits_for[j] == 0) free.insert(j);
  }
  if (sorted.size() == hooks.size()) return sorted;
  problems.push_back(cycle_problem(hooks, find_cycle(hooks, done), event));
  return {};
}

/// Returns whether a chain of edges leads from one hook to the other; `sorted` is in a valid order.
bool ordered(const std::vector<Candidate>& sorted, std::size_t from, std::size_t to) {
  std::vector<bool> reached(sorted.size(), false);
  reached[from] = true;
  for (std::size_t i = from; i < to; ++i)
    if (reached[i])
      for (std::size_t j = i + 1; j <= to; ++j)
        if (edge(sorted[i], sorted[j]) != Why::nothing) reached[j] = true;
  return reached[to];
}

/// Regions whose writers may run in any order.
constexpr Regions commutative = Region::control | Region::metrics | Region::plugin_own;

/// The hooks of the current plugin that write a region, and those of the plugin that wrote it before.
struct Writers {
  std::vector<std::size_t> before, now;
};

/// Checks each writer against those just before it: if these are ordered, so are those further away.
void check_writers(const std::vector<Candidate>& sorted, Event event, std::vector<OrderProblem>& problems) {
  std::array<Writers, region_count> writers;
  for (std::size_t j = 0; j < sorted.size(); ++j) {
    std::map<std::size_t, Regions> shared;
    for (std::size_t r = 0; r < region_count; ++r) {
      const auto region = static_cast<Region>(r);
      if (!sorted[j].spec->writes.contains(region) || commutative.contains(region)) continue;
      auto& [before, now] = writers[r];
      if (!now.empty() && sorted[now.back()].participant != sorted[j].participant)
        before = std::exchange(now, {});
      now.push_back(j);
      for (const std::size_t i : before) shared[i] = shared[i] | region;
    }
    for (const auto& [i, regions] : shared) {
      if (ordered(sorted, i, j)) continue;
      if (sorted[i].owner->in_order_of_file && sorted[j].owner->in_order_of_file) continue;
      problems.push_back({"E319",
                          "\"" + sorted[i].owner->id + "\" and \"" + sorted[j].owner->id + "\" both write " +
                              text(regions) + " at " + std::string(name(event)) + " in no declared order",
                          "give one of them `after = [\"" + sorted[i].owner->id + "\"]`, or drop one"});
    }
  }
}

std::string reason_between(const Candidate& a, const Candidate& b, bool reversed) {
  if (a.spec->phase != b.spec->phase)
    return "phase " + std::string(name(a.spec->phase)) + " before " + std::string(name(b.spec->phase));
  if (reversed && a.opened && b.opened) return "reverse of " + std::string(name(opening_of(a.spec->event)));
  const std::string declared = reversed ? words(edge(b, a), b, a) : words(edge(a, b), a, b);
  const std::string why = !declared.empty()                ? declared
                          : a.participant != b.participant ? "config order"
                                                           : "manifest order";
  return reversed ? "closing event, reverse of: " + why : why;
}

/// Returns the place of each participant's first transform in the order of an event.
std::vector<std::optional<std::size_t>> transform_places(const std::vector<Place>& places,
                                                         const std::vector<Participant>& participants) {
  std::vector<std::optional<std::size_t>> first(participants.size());
  for (std::size_t i = 0; i < places.size(); ++i)
    if (participants[places[i].participant].hooks[places[i].hook].phase == Phase::transform)
      if (auto& place = first[places[i].participant]; !place) place = i;
  return first;
}

}  // namespace

std::string text(Regions regions) {
  std::string result;
  for (std::size_t i = 0; i < region_count; ++i)
    if (regions.contains(static_cast<Region>(i)))
      result += (result.empty() ? "" : ", ") + std::string(region_names[i]);
  return result;
}

Event opening_of(Event event) {
  switch (event) {
    case Event::after_load: return Event::before_load;
    case Event::fit_end: return Event::fit_start;
    case Event::epoch_end: return Event::epoch_start;
    case Event::after_fetch: return Event::before_fetch;
    case Event::batch_end: return Event::batch_start;
    case Event::micro_end: return Event::micro_start;
    case Event::after_forward: return Event::before_forward;
    case Event::after_loss: return Event::before_loss;
    case Event::after_backward: return Event::before_backward;
    case Event::after_reduce: return Event::before_reduce;
    case Event::after_step:
    case Event::step_skipped: return Event::before_step;
    case Event::eval_end: return Event::eval_start;
    case Event::eval_batch_end: return Event::eval_batch_start;
    case Event::after_checkpoint: return Event::before_checkpoint;
    case Event::swap_in: return Event::swap_out;
    case Event::exception:
    case Event::shutdown: return Event::init;  // both run in reverse
    default: return event;
  }
}

Order make_order(const std::vector<Participant>& participants, int ranks) {
  Order order;
  for (std::size_t e = 0; e < event_count; ++e) {
    const auto event = static_cast<Event>(e);
    const bool closing = opening_of(event) != event;
    const auto opened =
        transform_places(order.places[static_cast<std::size_t>(opening_of(event))], participants);
    std::array<std::vector<Candidate>, phase_names.size()> phases;
    for (std::size_t p = 0; p < participants.size(); ++p)
      for (std::size_t h = 0; h < participants[p].hooks.size(); ++h) {
        const HookSpec& spec = participants[p].hooks[h];
        if (spec.event != event) continue;
        phases[static_cast<std::size_t>(spec.phase)].push_back({p, h, &participants[p], &spec});
        if (closing && spec.phase == Phase::transform)
          phases[static_cast<std::size_t>(spec.phase)].back().opened = opened[p];
        if (needs_ranks(event) && ranks == 1)
          order.problems.push_back({"E321",
                                    participants[p].id + " subscribes to " + std::string(name(event)) +
                                        ", which nothing fires in a run of one rank",
                                    "drop the hook: it would never be called"});
        if (!writable(event).contains(spec.writes))
          order.problems.push_back(
              {"E320",
               participants[p].id + " declares that it writes " + text(spec.writes) + " at " +
                   std::string(name(event)),
               "there a hook may write: " + (writable(event).empty() ? "nothing" : text(writable(event)))});
      }
    std::vector<Candidate> all;
    std::size_t transforms = 0;
    for (std::size_t phase = 0; phase < phases.size(); ++phase) {
      std::vector<Candidate> sorted = sort_phase(std::move(phases[phase]), event, order.problems);
      if (static_cast<Phase>(phase) == Phase::transform) {
        check_writers(sorted, event, order.problems);
        if (closing) std::reverse(sorted.begin(), sorted.end());
        transforms = sorted.size();
      }
      all.insert(all.end(), sorted.begin(), sorted.end());
    }
    for (std::size_t i = 0; i < all.size(); ++i)
      order.places[e].push_back(
          {all[i].participant, all[i].hook,
           i == 0 ? "" : reason_between(all[i - 1], all[i], closing && i < transforms)});
  }
  return order;
}

std::string Order::digest(const std::vector<Participant>& participants) const {
  lib::Fnv1a hash;
  const auto mix = [&hash](std::string_view bytes) { hash.update(bytes).update("\xff"); };
  for (std::size_t e = 0; e < event_count; ++e) {
    mix(event_names[e]);
    for (const Place& place : places[e]) {
      const HookSpec& spec = participants[place.participant].hooks[place.hook];
      mix(participants[place.participant].id);
      mix(name(spec.phase));
      mix(text(spec.writes));
      mix(spec.cadence.every + "/" + spec.cadence.start + "/" + spec.cadence.end);
    }
  }
  return hash.hex();
}

}  // namespace trainyard::events
