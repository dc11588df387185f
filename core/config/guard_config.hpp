// [guard]: what is done about plugins that misbehave.
#pragma once

#include <cstdint>

namespace trainyard::config {

struct GuardConfig {
  double deadline_seconds = 60.0;  ///< for one call into a plugin; 0: none
  bool end_overdue = false;        ///< on_deadline = "abort": ends the run; else it is told, once a call
  /// When a hook wrote a value that is not finite: `disable` undoes the write and goes on without the plugin,
  /// `rollback` goes back to the last checkpoint.
  enum class Nan : std::uint8_t { off, abort, disable, rollback } nan = Nan::abort;
  bool strict_state = false;  ///< find writes that hooks did not declare; slow
};

}  // namespace trainyard::config
