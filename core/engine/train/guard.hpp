// The guard around a call into the plugin of a slot: whatever it throws comes out as an Error that names
// slot, plugin and step. Free where nothing is thrown.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include <trainyard/duration.hpp>
#include <trainyard/error.hpp>

#include "core/engine/events/where.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

/// What a plugin threw in a call of the loop's own, with its slot, its name and the step.
class PluginFailure : public events::BlamedError {
 public:
  PluginFailure(ExitCode code, const events::Blame& blame, const std::string& why)
      : BlamedError(code, blame,
                    "[" + blame.slot + "] " + blame.plugin +
                        (blame.step > 0 ? ", step " + std::to_string(blame.step) : "") + ": " + why),
        why_(why) {}

  /// The same, where a guard further out knows the step and the one that caught it did not.
  PluginFailure at(std::int64_t step, std::optional<Event> event) const {
    if (blame().step > 0) return *this;
    events::Blame better = blame();
    better.step = step;
    if (event) better.event = event;
    return {code(), better, why_};
  }

 private:
  std::string why_;
};

/// `step` 0: before training, or not known here. Guards may stand within each other: the inner one is
/// believed.
template <class Call>
decltype(auto) guarded(const config::SlotConfig& slot, std::int64_t step, Call&& call) {
  const auto event = [] {
    const auto newest = events::newest_event(events::call_frame);
    return newest ? std::optional(newest->event) : std::nullopt;
  };
  const auto failure = [&](ExitCode code, const std::string& why) {
    return PluginFailure(code, {slot.slot, slot.type, event(), false, step}, why);
  };
  const events::CallScope scope(slot.slot.c_str(), slot.type.c_str());
  try {
    return call();
  } catch (const PluginFailure& inner) {
    throw inner.at(step, event());
  } catch (const Error& error) {
    throw failure(error.code(), error.what());
  } catch (const c10::Error& error) {
    throw failure(ExitCode::plugin, error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw failure(ExitCode::plugin, error.what());
  } catch (...) {
    throw failure(ExitCode::plugin, "threw something that is no std::exception");
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
