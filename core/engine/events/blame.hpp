// An error of a plugin, with the facts about it that a report and the supervisor need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <trainyard/error.hpp>
#include <trainyard/event.hpp>

namespace trainyard::events {

struct Blame {
  std::string slot;            ///< place in the run file
  std::string plugin;          ///< its name
  std::optional<Event> event;  ///< the last event that was fired
  bool hook = false;           ///< in its hook of that event; else in a call that the loop made itself
  std::int64_t step = 0;       ///< 0: before training, or unknown
  bool rollback = false;       ///< the run may go on from its last checkpoint, without the plugin
};

/// An exception of a plugin, or an inspector's objection to it: the message names plugin, place and step.
class BlamedError : public Error {
 public:
  BlamedError(ExitCode code, Blame blame, const std::string& why)
      : Error(code, text(blame, why)), blame_(std::move(blame)), why_(why) {}
  const Blame& blame() const noexcept { return blame_; }
  /// Returns the message without the blame.
  const std::string& why() const noexcept { return why_; }

 private:
  static std::string text(const Blame& blame, const std::string& why) {
    std::string text = "[" + blame.slot + "] " + blame.plugin;
    if (blame.hook) text += " at " + std::string(name(*blame.event));
    if (blame.hook || blame.step > 0) text += ", step " + std::to_string(blame.step);
    return text + ": " + why;
  }

  Blame blame_;
  std::string why_;
};

}  // namespace trainyard::events
