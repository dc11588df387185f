// Reads call frames: from a signal handler, from another thread, after an exception.
#pragma once

#include <optional>

#include "core/engine/events/bus.hpp"
#include "core/engine/events/call_frame.hpp"

namespace trainyard::events {

/// The plugin that a thread is in; null pointers: none.
struct Where {
  const char *slot = nullptr, *plugin = nullptr;
  bool hook = false;  ///< true: in a hook of the newest event; false: in a call of the loop itself
  std::uint64_t call = 0, fired = 0;  ///< if both are the same later, it is still the same call

  bool operator==(const Where&) const = default;
};

inline Where where(const CallFrame& frame) {
  const Bus* bus = frame.bus.load();
  Where found{.call = frame.sequence.load(), .fired = bus != nullptr ? bus->trail().count() : 0};
  if (const Subscriber* who = frame.hook.load()) {
    found.slot = who->slot.c_str();
    found.plugin = who->participant.plugin.c_str();
    found.hook = true;
  } else if (const char* slot = frame.slot.load()) {
    found.slot = slot;
    found.plugin = frame.plugin.load();
  }
  return found;
}

/// Returns the event that a thread fired last; a loader's thread fires none.
inline std::optional<Trail::Entry> newest_event(const CallFrame& frame) {
  const Bus* bus = frame.bus.load();
  if (bus == nullptr || bus->trail().size() == 0) return std::nullopt;
  const Trail::Entry newest = bus->trail().back(0);
  if (static_cast<std::size_t>(newest.event) >= event_count) return std::nullopt;
  return newest;
}

}  // namespace trainyard::events
