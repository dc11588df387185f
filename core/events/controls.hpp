// What hooks may ask of the loop at each event: the column "Control allowed" of the event rules.
#pragma once

#include <string>

#include <trainyard/context.hpp>

namespace trainyard::events {

constexpr unsigned operator|(Control a, Control b) {
  return static_cast<unsigned>(a) | static_cast<unsigned>(b);
}
constexpr unsigned operator|(unsigned a, Control b) {
  return a | static_cast<unsigned>(b);
}

/// The bits of Control that an event takes; those of an event that does not let control be written: none.
constexpr unsigned controls(Event event) {
  using enum Control;
  switch (event) {
    case Event::fit_start:
    case Event::fit_end:
    case Event::epoch_start:
    case Event::epoch_end:
    case Event::signal: return static_cast<unsigned>(stop_run);
    case Event::before_fetch:
    case Event::after_fetch:
    case Event::eval_batch_start:
    case Event::eval_batch_end: return static_cast<unsigned>(skip_batch);
    case Event::batch_start: return skip_batch | evaluate | checkpoint | stop_epoch | stop_run;
    case Event::batch_end:
    case Event::after_step:
    case Event::safe_point: return evaluate | checkpoint | stop_epoch | stop_run;
    case Event::before_forward:
    case Event::after_forward:
    case Event::before_backward: return static_cast<unsigned>(skip_micro);
    case Event::before_step: return skip_step | repeat_step;
    case Event::eval_start:
    case Event::eval_end: return stop_run | checkpoint;
    case Event::before_checkpoint: return static_cast<unsigned>(skip_checkpoint);
    default: return 0;
  }
}

/// "skip_step, repeat_step".
inline std::string text(unsigned controls) {
  std::string names;
  for (int i = 0; i < control_count; ++i)
    if ((controls & 1u << i) != 0) names += (names.empty() ? "" : ", ") + std::string(control_names[i]);
  return names;
}

}  // namespace trainyard::events
