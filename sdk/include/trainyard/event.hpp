// The events of the training loop: when each fires, what a hook may write there and may ask of the loop.
//
// One step of k micro-batches:
//   before_fetch  after_fetch  batch_start
//   k times: micro_start  before_forward  after_forward  before_loss  after_loss
//            before_backward  after_backward  micro_end
//   before_reduce  after_reduce  before_step  (after_step | step_skipped)  batch_end
//   [eval_start  (eval_batch_start  eval_batch_end)*  eval_end]
//   safe_point  [before_checkpoint  after_checkpoint]
// Pairs are brackets: where the opening event has fired, the closing one fires as well, also where a batch is
// skipped or an error is on its way. All fire on the loop's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("event.hpp");

namespace trainyard {

/// The events, in the order in which the loop fires them first.
enum class Event : std::uint8_t {
  /// Fired once, when the plugins are constructed. There is no model yet.
  init,
  /// Fired once, when the network is built. The optimizer is not, so that layers may still change.
  model_ready,
  /// Fired once: from here on the groups of parameters are final.
  optimizer_ready,
  /// Fired before the states of a checkpoint are loaded.
  before_load,
  /// Fired after the states are loaded: all is as it was when it was saved.
  after_load,
  /// Fired once, before the first step and before a checkpoint is loaded.
  fit_start,
  /// Fired once an epoch; not again where a resumed run begins within one.
  epoch_start,
  /// Fired before the wait for a step's data.
  before_fetch,
  /// Fired when the data of the step is there, on its device.
  after_fetch,
  /// Fired before a step's first micro-batch.
  batch_start,
  /// Fired before each micro-batch; the context has its index, the count and its share of the loss.
  micro_start,
  /// Fired within autocast. In training only, as all up to after_backward; not where a batch has weight 0.
  before_forward,
  /// Fired when the output is there.
  after_forward,
  /// Fired before the loss. A hook that changes the target here restores it at after_loss.
  before_loss,
  /// Fired when the mean loss of the micro-batch is there, not yet weighted or scaled.
  after_loss,
  /// Fired before the backward pass.
  before_backward,
  /// Fired when the gradients of the micro-batch are added to those before it.
  after_backward,
  /// Fired after each micro-batch.
  micro_end,
  /// Fired before gradients are summed over ranks. Only where several ranks train; a hook here, at
  /// after_backward or at micro_end makes all gradients leave after backward, not during it.
  before_reduce,
  /// Fired after that sum.
  after_reduce,
  /// Fired when the batch's gradients are unscaled and clipped and the rates set; again after repeat_step.
  before_step,
  /// Fired when the optimizer has updated the weights.
  after_step,
  /// Fired in place of after_step: overflow, an error, a plugin or repeat (StepContext::skip_reason).
  step_skipped,
  /// Fired last in a step: the clock has advanced; metrics of the step exist where it is logged.
  batch_end,
  /// Fired before an evaluation.
  eval_start,
  /// Fired before each batch of an evaluation.
  eval_batch_start,
  /// Fired after it: output and loss are there.
  eval_batch_end,
  /// Fired when the metrics of the evaluation exist; there are none where a signal cut it short.
  eval_end,
  /// Fired before a save.
  before_checkpoint,
  /// Fired when a save is committed, its manifest on the disk; with `async` some steps after it was begun.
  after_checkpoint,
  /// Fired between two steps, after the evaluation. Only here swaps, pauses and changes are made.
  safe_point,
  /// Fired once an epoch, at its end.
  epoch_end,
  /// Fired once, after the last step.
  fit_end,
  /// Fired for the plugin that a swap removes, alone.
  swap_out,
  /// Fired for the plugin that a swap puts in, alone, once it has taken over the state.
  swap_in,
  /// Fired on SIGINT, SIGTERM or SIGUSR1; on the loop's thread, before the checkpoint that it causes.
  signal,
  /// Fired when an error ends the run. Nothing may be thrown here.
  exception,
  /// Fired last, whatever came before.
  shutdown,
};
inline constexpr std::size_t event_count = static_cast<std::size_t>(Event::shutdown) + 1;

/// The events of a micro-batch. The run's executor fires those that its manifest declares (executor.hpp): a
/// hook on another of these is refused at validation.
inline constexpr Event micro_events[] = {Event::micro_start,    Event::before_forward, Event::after_forward,
                                         Event::before_loss,    Event::after_loss,     Event::before_backward,
                                         Event::after_backward, Event::micro_end};
constexpr bool of_micro(Event event) {
  for (const Event each : micro_events)
    if (each == event) return true;
  return false;
}

/// Hooks of one event run in this order of phases: declared writers, then observers, then I/O.
enum class Phase : std::uint8_t { transform, observe, sink };

/// Parts of the training state; a hook states which of them it writes.
enum class Region : std::uint8_t {
  model,       ///< parameters and buffers
  grads,       ///< gradients
  optimizer,   ///< optimizer state
  hyper,       ///< learning rate, weight decay, momentum of the parameter groups
  batch,       ///< inputs and targets
  outputs,     ///< model output and loss
  random,      ///< random streams
  metrics,     ///< metric values
  data,        ///< data position
  control,     ///< control bits
  plugin_own,  ///< nothing but the plugin's own state
};
inline constexpr std::size_t region_count = static_cast<std::size_t>(Region::plugin_own) + 1;

/// A set of regions.
class Regions {
 public:
  constexpr Regions() = default;
  constexpr Regions(Region region) : bits_(1u << static_cast<unsigned>(region)) {}
  constexpr Regions operator|(Regions other) const { return Regions(bits_ | other.bits_); }
  constexpr Regions operator&(Regions other) const { return Regions(bits_ & other.bits_); }
  constexpr bool contains(Region region) const { return (bits_ & Regions(region).bits_) != 0; }
  constexpr bool contains(Regions other) const { return (bits_ & other.bits_) == other.bits_; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool operator==(const Regions&) const = default;

 private:
  constexpr explicit Regions(std::uint32_t bits) : bits_(bits) {}
  std::uint32_t bits_ = 0;
};
constexpr Regions operator|(Region a, Region b) {
  return Regions(a) | Regions(b);
}

inline constexpr std::array<std::string_view, event_count> event_names = {
    // A run begins.
    "init", "model_ready", "optimizer_ready", "before_load", "after_load", "fit_start", "epoch_start",
    // A step.
    "before_fetch", "after_fetch", "batch_start", "micro_start", "before_forward", "after_forward",
    "before_loss", "after_loss", "before_backward", "after_backward", "micro_end", "before_reduce",
    "after_reduce", "before_step", "after_step", "step_skipped", "batch_end",
    // Between steps.
    "eval_start", "eval_batch_start", "eval_batch_end", "eval_end", "before_checkpoint", "after_checkpoint",
    "safe_point", "epoch_end", "fit_end", "swap_out", "swap_in", "signal", "exception", "shutdown"};
inline constexpr std::array<std::string_view, 3> phase_names = {"transform", "observe", "sink"};
inline constexpr std::array<std::string_view, region_count> region_names = {
    "model",  "grads",   "optimizer", "hyper",   "batch",     "outputs",
    "random", "metrics", "data",      "control", "plugin_own"};

constexpr std::string_view name(Event event) {
  return event_names[static_cast<std::size_t>(event)];
}
constexpr std::string_view name(Phase phase) {
  return phase_names[static_cast<std::size_t>(phase)];
}
constexpr std::string_view name(Region region) {
  return region_names[static_cast<std::size_t>(region)];
}

/// Requests to the loop, combined by "or" over plugins; the strongest wins: stop_run > stop_epoch >
/// skip_batch > skip_step > repeat_step. Each may be asked for at some events only (`controls`).
enum class Control : std::uint16_t {
  skip_micro = 1,
  skip_step = 2,
  skip_batch = 4,
  stop_epoch = 8,
  stop_run = 16,
  evaluate = 32,
  checkpoint = 64,
  /// Computes the gradients of the same batch again, at the weights as they are now, and fires before_step
  /// once more; at most `most_repeats` times a step. For methods such as SAM, which look at several points.
  repeat_step = 128,
  skip_checkpoint = 256,  ///< valid at before_checkpoint: none is written this time
};
inline constexpr int control_count = 9;
inline constexpr std::string_view control_names[control_count] = {
    "skip_micro", "skip_step",  "skip_batch",  "stop_epoch",     "stop_run",
    "evaluate",   "checkpoint", "repeat_step", "skip_checkpoint"};
inline constexpr int most_repeats = 8;

/// Returns the regions that a hook may declare as written at an event. A plugin's own state is shared with
/// nobody and may be written anywhere.
constexpr Regions writable(Event event) {
  using enum Region;
  switch (event) {
    case Event::init: return plugin_own;
    case Event::model_ready: return model | plugin_own;
    case Event::optimizer_ready: return optimizer | hyper | plugin_own;
    case Event::before_load: return plugin_own;
    case Event::after_load: return model | optimizer | hyper | random | control | plugin_own;
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
    case Event::after_backward: return grads | plugin_own;
    // A hook that doubles or mixes a batch restores it here: a repeated step begins with it again.
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
    case Event::swap_out: return plugin_own;
    case Event::swap_in:
    case Event::signal: return control | plugin_own;
    case Event::exception:
    case Event::shutdown: return plugin_own;
  }
  return {};
}

/// Returns whether hooks may write weights or the optimizer's state at an event. The optimizer's own update
/// comes right after one of these.
constexpr bool weights_written_at(Event event) {
  const Regions regions = writable(event);
  return regions.contains(Region::model) || regions.contains(Region::optimizer);
}

constexpr unsigned operator|(Control a, Control b) {
  return static_cast<unsigned>(a) | static_cast<unsigned>(b);
}
constexpr unsigned operator|(unsigned a, Control b) {
  return a | static_cast<unsigned>(b);
}

/// Returns the bits of Control that an event takes; 0 for an event that does not let control be written.
constexpr unsigned controls(Event event) {
  using enum Control;
  switch (event) {
    case Event::after_load:
    case Event::swap_in:
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

/// Returns the names of the bits that are set: "skip_step, repeat_step".
inline std::string controls_text(unsigned controls) {
  std::string names;
  for (int i = 0; i < control_count; ++i)
    if ((controls & 1u << i) != 0) names += (names.empty() ? "" : ", ") + std::string(control_names[i]);
  return names;
}

/// Only several ranks fire these events. A run of one rank with a hook there is refused, as nothing would call it.
constexpr bool needs_ranks(Event event) {
  return event == Event::before_reduce || event == Event::after_reduce;
}

}  // namespace trainyard
