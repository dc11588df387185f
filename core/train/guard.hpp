// The guard around a call into the plugin of a slot: whatever it throws comes out as an Error that names
// slot, plugin and step. Free where nothing is thrown.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include <trainyard/duration.hpp>
#include <trainyard/error.hpp>

#include "core/config/run_config.hpp"

namespace trainyard::train {

/// `step` 0: before training.
template <class Call>
decltype(auto) guarded(const config::SlotConfig& slot, std::int64_t step, Call&& call) {
  const auto who = [&] {
    return "[" + slot.slot + "] " + slot.type + (step > 0 ? ", step " + std::to_string(step) : "") + ": ";
  };
  try {
    return call();
  } catch (const Error& error) {
    throw Error(error.code(), who() + error.what());
  } catch (const c10::Error& error) {
    throw PluginError(who() + error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw PluginError(who() + error.what());
  } catch (...) {
    throw PluginError(who() + "threw something that is no std::exception");
  }
}

/// A length of the run file in optimizer steps, at least 1. Throws ConfigError where this run cannot tell.
inline std::int64_t in_steps(const Duration& duration, const RunScale& scale, const std::string& key) {
  const std::optional<std::int64_t> steps = duration.steps(scale);
  if (!steps)
    throw ConfigError(key + " = \"" + duration.text() +
                      "\" cannot be counted in steps in this run: use ep, ba or sp");
  return std::max<std::int64_t>(1, *steps);
}

}  // namespace trainyard::train
