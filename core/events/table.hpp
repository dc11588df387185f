// What the hooks of each event may write: the table of the event rules, as the seal tool, the registry and
// the event bus share it.
#pragma once

#include <trainyard/event.hpp>

namespace trainyard::events {

/// The regions that a hook may declare as written at an event. A plugin's own state is shared with nobody and
/// may be written anywhere.
constexpr Regions writable(Event event) {
  using enum Region;
  switch (event) {
    case Event::init: return plugin_own;
    case Event::model_ready: return model | plugin_own;
    case Event::optimizer_ready: return optimizer | hyper | plugin_own;
    case Event::before_load: return plugin_own;
    case Event::after_load: return model | optimizer | hyper | random | plugin_own;
    case Event::fit_start: return model | optimizer | hyper | control | plugin_own;
    case Event::epoch_start: return hyper | random | data | control | plugin_own;
    case Event::before_fetch: return data | control | plugin_own;
    case Event::after_fetch: return batch | control | plugin_own;
    case Event::batch_start: return batch | hyper | control | plugin_own;
    case Event::micro_start: return batch | plugin_own;
    case Event::before_forward: return batch | random | control | plugin_own;
    case Event::after_forward: return outputs | control | plugin_own;
    case Event::before_loss:
    case Event::after_loss: return batch | outputs | plugin_own;
    case Event::before_backward: return outputs | control | plugin_own;
    case Event::bucket_ready:
    case Event::after_backward: return grads | plugin_own;
    // What doubles or mixes a batch gives it back: a repeated step begins with it again.
    case Event::micro_end: return batch | metrics | plugin_own;
    case Event::before_reduce:
    case Event::after_reduce: return grads | plugin_own;
    // Methods that look at several points (SAM) move the weights here and back.
    case Event::before_step: return model | grads | hyper | control | plugin_own;
    case Event::after_step: return model | control | plugin_own;
    case Event::step_skipped: return hyper | plugin_own;
    case Event::batch_end: return metrics | hyper | control | plugin_own;
    // Averaged weights are swapped in for an evaluation and out after it: model on both sides of the bracket.
    case Event::eval_start: return model | random | control | plugin_own;
    case Event::eval_batch_start: return batch | control | plugin_own;
    case Event::eval_batch_end: return metrics | control | plugin_own;
    case Event::eval_end: return model | metrics | control | plugin_own;
    case Event::before_checkpoint: return control | plugin_own;
    case Event::after_checkpoint: return plugin_own;
    case Event::safe_point: return control | plugin_own;
    case Event::epoch_end: return hyper | random | data | control | plugin_own;
    case Event::fit_end: return metrics | control | plugin_own;  // never the model: it would not be saved
    case Event::swap_out:
    case Event::swap_in: return plugin_own;
    case Event::signal: return control | plugin_own;
    case Event::exception:
    case Event::shutdown: return plugin_own;
  }
  return {};
}

/// Whether hooks may write weights or the optimizer's state at an event. The optimizer itself does it behind
/// one of these.
constexpr bool weights_written_at(Event event) {
  const Regions regions = writable(event);
  return regions.contains(Region::model) || regions.contains(Region::optimizer);
}

}  // namespace trainyard::events
