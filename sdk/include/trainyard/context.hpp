// The context of a hook: the clock, and the regions of the training state that exist at its event. It is
// borrowed for the length of the call; keep nothing of it: between hooks all but `event` and `step_number`
// throw PluginError. With --strict-state a context that was kept throws within later hooks, too.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/contract.hpp>
#include <trainyard/duration.hpp>
#include <trainyard/event.hpp>

TRAINYARD_CONTRACT("context.hpp");

namespace trainyard {

class Network;
class Optimizer;

/// The position of the run. It counts what is done: `step` is 0 during the first step and moves just before
/// batch_end.
struct Clock {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::int64_t step_in_epoch = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t total_steps = 0;  ///< 0 where the run is bounded by wall time
};

/// Says why step_skipped was fired in place of after_step. `repeat`: before_step is fired again.
enum class SkipReason : std::uint8_t { none, overflow, error, plugin, repeat };

class StepContext {
 public:
  /// The hook that a context is lent to.
  struct Caller {
    const char* id;            ///< id of its plugin
    Regions writes;            ///< regions that it declared
    const char* address = id;  ///< address of its plugin: "hooks.ema"
  };

  const Clock& clock() const { return lent().clock_; }
  /// Returns the current step's number from 1, the same from before_fetch to safe_point; cadences count it.
  std::int64_t step_number() const { return number_; }
  /// Converts a duration among the plugin's options: `duration.steps(context.scale())`.
  const RunScale& scale() const { return lent().run_scale_; }
  Event event() const { return event_; }

  /// Return the index of the current micro-batch in the step, and how many there are.
  int micro() const { return lent().micro_; }
  int micros() const { return lent().micros_; }
  /// Returns how often the step was repeated so far (Control::repeat_step); 0 on the first pass.
  int repeats() const { return lent().repeats_; }

  // Read access. Throws PluginError where the event has no such region yet.
  Network& network() const;          ///< from model_ready on
  Optimizer& optimizer() const;      ///< from optimizer_ready on
  const Batch& batch() const;        ///< between after_fetch and batch_end, and in evaluation
  const at::Tensor& output() const;  ///< from after_forward to micro_end, and at eval_batch_end
  const at::Tensor& loss() const;    ///< mean over the micro-batch, from after_loss; at eval_batch_end
  /// Returns the share of the micro-batch in the step's loss: its weight over that of the whole batch.
  /// Backward starts from `loss` times this and `loss_scale`.
  double loss_share() const { return lent().loss_share_; }
  double loss_scale() const { return lent().loss_scale_; }
  bool evaluating() const { return lent().evaluating_; }
  /// Returns "train" in a training step, or the split that is evaluated, "val" or "test".
  std::string_view split() const { return lent().split_; }
  SkipReason skip_reason() const { return lent().skip_reason_; }
  /// Returns a metric of the step (batch_end) or of the evaluation (eval_end); NaN where none has that name.
  double metric(std::string_view name) const;
  /// Returns all of these metrics, ordered by name.
  const std::map<std::string, double, std::less<>>& metrics() const;

  // Write access. Throws PluginError unless the subscription declared the region.
  Batch& mutable_batch();
  at::Tensor& mutable_output();
  at::Tensor& mutable_loss();
  /// Makes a request to the loop; `reason` is journaled once while it stands. Open requests are in
  /// checkpoints and stand again on resume. Throws PluginError where the event does not take the request.
  void request(Control control, std::string_view reason);
  /// Withdraws an open request of this plugin, if there is one: at after_load and swap_in, where other
  /// options, or another state, have changed the plugin's mind.
  void withdraw(Control control);

 protected:
  StepContext() = default;
  ~StepContext() = default;

  struct Services;  ///< the host's side

  /// Stands in the place of a hook while none runs.
  static const Caller nobody;
  /// Throws PluginError where the hook has returned.
  const StepContext& lent() const {
    if (caller_ == &nobody) [[unlikely]]
      gone();
    return *this;
  }
  [[noreturn, gnu::cold]] void gone() const;

  Clock clock_;
  std::int64_t number_ = 0;  ///< number of the current step, from 1; stays after the clock moved
  RunScale run_scale_;
  Event event_ = Event::init;
  bool evaluating_ = false;
  std::string_view split_ = "train";
  SkipReason skip_reason_ = SkipReason::none;
  int micro_ = 0;
  int micros_ = 1;
  int repeats_ = 0;
  double loss_share_ = 1.0;
  double loss_scale_ = 1.0;
  Network* network_ = nullptr;
  Optimizer* optimizer_ = nullptr;
  Batch* batch_ = nullptr;
  at::Tensor output_;
  at::Tensor loss_;
  const Caller* caller_ = nullptr;  ///< the hook that runs; null in tests of a plugin alone
  Services* services_ = nullptr;
};

/// The host's side of a context.
struct StepContext::Services {
  virtual ~Services() = default;
  virtual double metric(std::string_view name) const = 0;
  virtual const std::map<std::string, double, std::less<>>& metrics() const;  ///< by default none
  virtual void request(Control control, const Caller& who, std::string_view reason) = 0;
  virtual void withdraw(Control control, const Caller& who) = 0;
};

}  // namespace trainyard
