// An error of a plugin, with what a report and the supervisor need to know of it.
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
  std::optional<Event> event;  ///< the last that was fired
  bool hook = false;           ///< in its hook of that event; else in a call that the loop made itself
  std::int64_t step = 0;       ///< 0: before training, or not known
};

/// The message names all of `blame`, too.
class BlamedError : public Error {
 public:
  BlamedError(ExitCode code, Blame blame, const std::string& message)
      : Error(code, message), blame_(std::move(blame)) {}
  const Blame& blame() const noexcept { return blame_; }

 private:
  Blame blame_;
};

}  // namespace trainyard::events
