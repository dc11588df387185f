// The events of the training loop, and what a subscription to one of them declares (events.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trainyard {

/// In the order in which the loop fires them first.
enum class Event : std::uint8_t {
  init,
  model_ready,
  optimizer_ready,
  before_load,
  after_load,
  fit_start,
  epoch_start,
  before_fetch,
  after_fetch,
  batch_start,
  micro_start,
  before_forward,
  after_forward,
  before_loss,
  after_loss,
  before_backward,
  bucket_ready,
  after_backward,
  micro_end,
  before_reduce,
  after_reduce,
  before_step,
  after_step,
  step_skipped,
  batch_end,
  eval_start,
  eval_batch_start,
  eval_batch_end,
  eval_end,
  before_checkpoint,
  after_checkpoint,
  safe_point,
  epoch_end,
  fit_end,
  swap_out,
  swap_in,
  signal,
  exception,
  shutdown,
};
inline constexpr std::size_t event_count = static_cast<std::size_t>(Event::shutdown) + 1;

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
    "init",          "model_ready",       "optimizer_ready",  "before_load",
    "after_load",    "fit_start",         "epoch_start",      "before_fetch",
    "after_fetch",   "batch_start",       "micro_start",      "before_forward",
    "after_forward", "before_loss",       "after_loss",       "before_backward",
    "bucket_ready",  "after_backward",    "micro_end",        "before_reduce",
    "after_reduce",  "before_step",       "after_step",       "step_skipped",
    "batch_end",     "eval_start",        "eval_batch_start", "eval_batch_end",
    "eval_end",      "before_checkpoint", "after_checkpoint", "safe_point",
    "epoch_end",     "fit_end",           "swap_out",         "swap_in",
    "signal",        "exception",         "shutdown"};
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

}  // namespace trainyard
