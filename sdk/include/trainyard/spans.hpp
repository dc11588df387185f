// Where the time of a training goes, for a plugin of any kind that wants to be told: derive from SpanWatcher, too.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("spans.hpp");

namespace trainyard {

/// A stretch of time on the loop's thread. Of two, either one lies within the other, or they lie apart.
struct Span {
  enum class What : std::uint8_t {
    step,  ///< all of a step: "step"
    phase,  ///< what the host does in it: "data" (waits for it), "forward", "loss", "backward", "optimizer"; and
            ///< "evaluation", "checkpoint"
    event,  ///< all hooks of an event, by its name
    hook,   ///< one of them
  };
  What what = What::step;
  std::string_view name;    ///< lives as long as the process
  std::string_view plugin;  ///< of a hook: its address ("hooks.ema"), which lives as long as the process
  std::int64_t step = 0;    ///< in which, or behind which, counted from 1
  std::chrono::steady_clock::time_point begin, end;
};

/// On a GPU a span is the time until its work was handed over. Loop thread. Both are to be short: they are part of
/// what is measured.
class SpanWatcher {
 public:
  virtual ~SpanWatcher() = default;

  /// Ahead of every step: whether its spans are wanted, and those behind it up to the next step. While nobody
  /// wants any they cost nothing. The host counts such a step among those that its own times are taken on.
  virtual bool wants_spans(std::int64_t step) noexcept = 0;

  /// At the end of a span: the inner ones come before the one that they lie in.
  virtual void span(const Span& span) noexcept = 0;
};

}  // namespace trainyard
