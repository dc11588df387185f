// Spans tell a plugin of any kind where the time of a training goes: derive it from SpanWatcher, too.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("spans.hpp");

namespace trainyard {

/// A stretch of time on the loop's thread. Two spans lie apart, or one lies within the other.
struct Span {
  enum class What : std::uint8_t {
    step,   ///< all of a step: "step"
    phase,  ///< what the host does in it: "data" (waits for it), "forward", "loss", "backward", "optimizer";
            ///< and "evaluation", "checkpoint"
    event,  ///< all hooks of an event, by its name
    hook,   ///< one of the hooks of an event
  };
  What what = What::step;
  std::string_view name;    ///< lives as long as the process
  std::string_view plugin;  ///< address of a hook's plugin ("hooks.ema"), which lives as long as the process
  std::int64_t step = 0;    ///< step that it lies in or follows, counted from 1
  std::chrono::steady_clock::time_point begin, end;
};

/// On a GPU a span ends when its work was handed over. Loop thread. Both calls are to be short: they are part
/// of what is measured.
class SpanWatcher {
 public:
  virtual ~SpanWatcher() = default;

  /// Called before every step: returns whether its spans are wanted, and those up to the next step. Unwanted
  /// spans cost nothing. The host counts a step with spans among those that it takes its own times on.
  virtual bool wants_spans(std::int64_t step) noexcept = 0;

  /// Called at the end of a span: the inner ones come before the one that they lie in.
  virtual void span(const Span& span) noexcept = 0;
};

}  // namespace trainyard
