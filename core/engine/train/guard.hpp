// The guard around a call into the plugin of a slot: whatever the call throws leaves it as an Error that
// names slot, plugin and step. It costs nothing if nothing is thrown.
#pragma once

#include <c10/util/Exception.h>

#include <functional>
#include <string>

#include <trainyard/duration.hpp>
#include <trainyard/error.hpp>

#include "core/engine/events/where.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

/// `step` is 0 before training, or if it is not known here. Guards may be nested: the blame of the inner one
/// is kept.
template <class Call>
decltype(auto) guarded(const config::SlotConfig& slot, std::int64_t step, Call&& call) {
  const auto failure = [&](ExitCode code, events::Blame blame, const std::string& why) {
    blame.step = step;
    if (const auto newest = events::newest_event(events::call_frame)) blame.event = newest->event;
    return events::BlamedError(code, std::move(blame), why);
  };
  const auto own = [&] { return events::Blame{.slot = slot.slot, .plugin = slot.type}; };
  const events::CallScope scope(slot.slot.c_str(), slot.type.c_str());
  try {
    return call();
  } catch (const events::BlamedError& inner) {
    if (inner.blame().step > 0) throw;
    throw failure(inner.code(), inner.blame(), inner.why());
  } catch (const Error& error) {
    throw failure(error.code(), own(), error.what());
  } catch (const c10::Error& error) {
    throw failure(ExitCode::plugin, own(), error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw failure(ExitCode::plugin, own(), error.what());
  } catch (...) {
    throw failure(ExitCode::plugin, own(), "threw something that is no std::exception");
  }
}

/// Returns what runs a call within the guard of a slot, on threads beside the loop. It keeps a copy of the
/// slot, as a swap may change it while such a thread is on its way.
inline std::function<void(const std::function<void()>&)> guard_of(const config::SlotConfig& slot) {
  return [slot](const std::function<void()>& call) { guarded(slot, 0, call); };
}

/// Returns a length of the run file in optimizer steps, at least 1. Throws ConfigError if it cannot.
inline std::int64_t in_steps(const Duration& duration, const RunScale& scale, const std::string& key) {
  const std::optional<std::int64_t> steps = duration.steps(scale);
  if (!steps)
    throw ConfigError(key + " = \"" + duration.text() +
                      "\" cannot be counted in steps in this run: use ep, ba or sp");
  return std::max<std::int64_t>(1, *steps);
}

/// A slot and what fills it: the loop calls the plugin within the guard of the slot, without a look-up.
template <class Interface>
struct Filled {
  const config::SlotConfig* slot = nullptr;
  Interface* plugin = nullptr;  ///< or what it made for the run: a network, a curve, a loader
};

}  // namespace trainyard::train
