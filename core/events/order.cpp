#include "core/events/order.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>

#include "core/events/table.hpp"

namespace trainyard::events {
namespace {

/// A hook while its event is being sorted.
struct Candidate {
  std::size_t participant;
  std::size_t hook;
  const Participant* owner;
  const HookSpec* spec;
  std::optional<std::size_t> opened = {};  ///< its plugin's place among the transforms of the opening event
};

/// Why `a` must run before `b`; empty: nothing says so.
std::string edge(const Candidate& a, const Candidate& b) {
  const auto names = [](const std::vector<std::string>& list, const Participant& who) {
    return std::any_of(list.begin(), list.end(),
                       [&](const std::string& name) { return name == who.id || name == who.plugin; });
  };
  if (names(a.spec->before, *b.owner)) return a.owner->id + " declares before = " + b.owner->id;
  if (names(b.spec->after, *a.owner)) return b.owner->id + " declares after = " + a.owner->id;
  if (a.spec->priority < b.spec->priority)
    return "priority " + std::to_string(a.spec->priority) + " before " + std::to_string(b.spec->priority);
  return {};
}

/// Why `a` is sorted before `b`. A closing event is sorted like its opening one, and reversed afterwards.
std::string reason(const Candidate& a, const Candidate& b) {
  if (!a.opened || !b.opened || *a.opened == *b.opened) return edge(a, b);
  return *a.opened < *b.opened ? "order of the opening event" : "";
}

/// Walks back along unsorted predecessors until one repeats: a cycle, in the order of its edges.
std::vector<std::size_t> find_cycle(const std::vector<Candidate>& hooks, const std::vector<bool>& done) {
  std::vector<std::size_t> path;
  std::size_t at = static_cast<std::size_t>(std::find(done.begin(), done.end(), false) - done.begin());
  while (std::find(path.begin(), path.end(), at) == path.end()) {
    path.push_back(at);
    for (std::size_t from = 0; from < hooks.size(); ++from)
      if (!done[from] && from != at && !reason(hooks[from], hooks[at]).empty()) {
        at = from;
        break;
      }
  }
  std::vector<std::size_t> cycle(std::find(path.begin(), path.end(), at), path.end());
  std::reverse(cycle.begin(), cycle.end());
  return cycle;
}

/// Stable topological sort of one phase of one event; ties go by config order, then id.
std::vector<Candidate> sort_phase(std::vector<Candidate> hooks, Event event,
                                  std::vector<OrderProblem>& problems) {
  std::sort(hooks.begin(), hooks.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.participant, a.owner->id, a.hook) < std::tie(b.participant, b.owner->id, b.hook);
  });
  std::vector<Candidate> sorted;
  std::vector<bool> done(hooks.size(), false);
  while (sorted.size() < hooks.size()) {
    std::size_t next = hooks.size();
    for (std::size_t i = 0; i < hooks.size() && next == hooks.size(); ++i) {
      if (done[i]) continue;
      bool free = true;
      for (std::size_t j = 0; j < hooks.size() && free; ++j)
        free = done[j] || j == i || reason(hooks[j], hooks[i]).empty();
      if (free) next = i;
    }
    if (next == hooks.size()) {
      const std::vector<std::size_t> cycle = find_cycle(hooks, done);
      std::string names, reasons;
      for (std::size_t k = 0; k < cycle.size(); ++k) {
        const Candidate& from = hooks[cycle[k]];
        const Candidate& to = hooks[cycle[(k + 1) % cycle.size()]];
        names += from.owner->id + " -> ";
        reasons += (k == 0 ? "" : "; ") + reason(from, to);
      }
      problems.push_back(
          {"E318",
           "order cycle at " + std::string(name(event)) + ": " + names + hooks[cycle.front()].owner->id,
           reasons + ": drop one of them"});
      return {};
    }
    done[next] = true;
    sorted.push_back(hooks[next]);
  }
  return sorted;
}

/// True where a chain of edges leads from one hook to the other; `sorted` is in a valid order.
bool ordered(const std::vector<Candidate>& sorted, std::size_t from, std::size_t to) {
  std::vector<bool> reached(sorted.size(), false);
  reached[from] = true;
  for (std::size_t i = from; i < to; ++i)
    if (reached[i])
      for (std::size_t j = i + 1; j <= to; ++j)
        if (!edge(sorted[i], sorted[j]).empty()) reached[j] = true;
  return reached[to];
}

/// Effects that do not depend on the order of their writers.
constexpr Regions commutative = Region::control | Region::metrics | Region::plugin_own;

Regions exclusive_overlap(const Candidate& a, const Candidate& b) {
  Regions overlap;
  for (std::size_t i = 0; i < region_count; ++i) {
    const auto region = static_cast<Region>(i);
    if (a.spec->writes.contains(region) && b.spec->writes.contains(region) && !commutative.contains(region))
      overlap = overlap | region;
  }
  return overlap;
}

void check_writers(const std::vector<Candidate>& sorted, Event event, std::vector<OrderProblem>& problems) {
  for (std::size_t i = 0; i < sorted.size(); ++i)
    for (std::size_t j = i + 1; j < sorted.size(); ++j) {
      const Regions overlap = exclusive_overlap(sorted[i], sorted[j]);
      if (overlap.empty() || sorted[i].participant == sorted[j].participant || ordered(sorted, i, j))
        continue;
      problems.push_back({"E319",
                          sorted[i].owner->id + " and " + sorted[j].owner->id + " both write " +
                              text(overlap) + " at " + std::string(name(event)) + " in no declared order",
                          "give one of them `after = [\"" + sorted[i].owner->id + "\"]`, or drop one"});
    }
}

std::string reason_between(const Candidate& a, const Candidate& b, bool reversed) {
  if (a.spec->phase != b.spec->phase)
    return "phase " + std::string(name(a.spec->phase)) + " before " + std::string(name(b.spec->phase));
  if (reversed && a.opened && b.opened) return "reverse of " + std::string(name(opening_of(a.spec->event)));
  const std::string declared = reversed ? edge(b, a) : edge(a, b);
  const std::string why = !declared.empty()                ? declared
                          : a.participant != b.participant ? "config order"
                                                           : "manifest order";
  return reversed ? "closing event, reverse of: " + why : why;
}

/// Where the first transform of a participant stands in the order of an event.
std::optional<std::size_t> transform_place(const std::vector<Place>& places,
                                           const std::vector<Participant>& participants,
                                           std::size_t participant) {
  for (std::size_t i = 0; i < places.size(); ++i)
    if (places[i].participant == participant &&
        participants[participant].hooks[places[i].hook].phase == Phase::transform)
      return i;
  return std::nullopt;
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

Order make_order(const std::vector<Participant>& participants) {
  Order order;
  for (std::size_t e = 0; e < event_count; ++e) {
    const auto event = static_cast<Event>(e);
    const bool closing = opening_of(event) != event;
    std::array<std::vector<Candidate>, phase_names.size()> phases;
    for (std::size_t p = 0; p < participants.size(); ++p)
      for (std::size_t h = 0; h < participants[p].hooks.size(); ++h) {
        const HookSpec& spec = participants[p].hooks[h];
        if (spec.event != event) continue;
        phases[static_cast<std::size_t>(spec.phase)].push_back({p, h, &participants[p], &spec});
        if (closing && spec.phase == Phase::transform)
          phases[static_cast<std::size_t>(spec.phase)].back().opened =
              transform_place(order.places[static_cast<std::size_t>(opening_of(event))], participants, p);
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
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  const auto mix = [&hash](std::string_view bytes) {
    for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
    hash = (hash ^ 0xff) * 1099511628211u;
  };
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
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(hash));
  return hex;
}

}  // namespace trainyard::events
