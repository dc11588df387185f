// The guard around a call into the plugin of a slot: whatever it throws comes out as an Error that names
// slot, plugin and step. Free where nothing is thrown.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include <trainyard/duration.hpp>
#include <trainyard/error.hpp>

#include "core/config/run_config.hpp"

namespace trainyard::train {

/// What a plugin threw, with its slot, its name and the step.
class PluginFailure : public Error {
 public:
  PluginFailure(ExitCode code, const config::SlotConfig& slot, std::int64_t step, const std::string& why)
      : Error(code, "[" + slot.slot + "] " + slot.type + (step > 0 ? ", step " + std::to_string(step) : "") +
                        ": " + why),
        slot_(&slot),
        step_(step),
        why_(why) {}

  /// The same, where a guard further out knows the step and the one that caught it did not.
  PluginFailure at(std::int64_t step) const {
    return step_ > 0 ? *this : PluginFailure(code(), *slot_, step, why_);
  }

 private:
  const config::SlotConfig* slot_;
  std::int64_t step_;
  std::string why_;
};

/// `step` 0: before training, or not known here. Guards may stand within each other: the inner one is
/// believed.
template <class Call>
decltype(auto) guarded(const config::SlotConfig& slot, std::int64_t step, Call&& call) {
  try {
    return call();
  } catch (const PluginFailure& failure) {
    throw failure.at(step);
  } catch (const Error& error) {
    throw PluginFailure(error.code(), slot, step, error.what());
  } catch (const c10::Error& error) {
    throw PluginFailure(ExitCode::plugin, slot, step, error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw PluginFailure(ExitCode::plugin, slot, step, error.what());
  } catch (...) {
    throw PluginFailure(ExitCode::plugin, slot, step, "threw something that is no std::exception");
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
