// What a hook sees: the clock, and the regions of the training state that exist at its event. Borrowed for
// the length of the call; keep nothing of it: between hooks all but `event` and `step_number` throw PluginError.
// With --strict-state a context that was kept throws within later hooks, too.
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

/// Where the run stands. Counts are of what is done: `step` is 0 during the first step and moves just before
/// batch_end.
struct Clock {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::int64_t step_in_epoch = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t total_steps = 0;  ///< 0 where the run is bounded by wall time
};

/// Why a step_skipped came in place of an after_step. `repeat`: before_step comes again.
enum class SkipReason : std::uint8_t { none, overflow, error, plugin, repeat };

class StepContext {
 public:
  /// The hook that a context is lent to.
  struct Caller {
    const char* id;            ///< of its plugin
    Regions writes;            ///< that it declared
    const char* address = id;  ///< of its plugin: "hooks.ema"
  };

  const Clock& clock() const { return lent().clock_; }
  /// Number of the current step from 1, the same from before_fetch to safe_point; cadences count it.
  std::int64_t step_number() const { return number_; }
  /// Converts a duration among the plugin's options: `duration.steps(context.scale())`.
  const RunScale& scale() const { return lent().run_scale_; }
  Event event() const { return event_; }

  /// The micro-batch of the step, and how many there are.
  int micro() const { return lent().micro_; }
  int micros() const { return lent().micros_; }
  /// How often the step was repeated so far (Control::repeat_step); 0 on the first pass.
  int repeats() const { return lent().repeats_; }

  // Read access. Throws PluginError where the event has no such region yet.
  Network& network() const;          ///< from model_ready on
  Optimizer& optimizer() const;      ///< from optimizer_ready on
  const Batch& batch() const;        ///< between after_fetch and batch_end, and in evaluation
  const at::Tensor& output() const;  ///< from after_forward to micro_end, and at eval_batch_end
  const at::Tensor& loss() const;    ///< mean over the micro-batch, from after_loss; at eval_batch_end
  /// Share of the micro-batch in the step's loss: its weight over that of the whole batch. `loss` times this
  /// and `loss_scale` is what backward starts from.
  double loss_share() const { return lent().loss_share_; }
  double loss_scale() const { return lent().loss_scale_; }
  bool evaluating() const { return lent().evaluating_; }
  /// What the step belongs to: "train", or the split that is evaluated, "val" or "test".
  std::string_view split() const { return lent().split_; }
  SkipReason skip_reason() const { return lent().skip_reason_; }
  /// Metrics of the step (batch_end) or of the evaluation (eval_end); NaN where there is none of that name.
  double metric(std::string_view name) const;
  /// All of them, ordered by name.
  const std::map<std::string, double, std::less<>>& metrics() const;

  // Write access. Throws PluginError unless the subscription declared the region.
  Batch& mutable_batch();
  at::Tensor& mutable_output();
  at::Tensor& mutable_loss();
  /// Asks the loop; `reason` goes into the journal, once while the request stands. A checkpoint holds what is
  /// not done yet: where a run goes on, it stands again. Throws PluginError where the event does not take it.
  void request(Control control, std::string_view reason);
  /// Takes back what this plugin has asked for, where it has and nothing came of it yet: at after_load and
  /// swap_in by a plugin that other options, or another state, have made change its mind.
  void withdraw(Control control);

 protected:
  StepContext() = default;
  ~StepContext() = default;

  struct Services;  ///< the host's side

  /// In the place of a hook while none runs.
  static const Caller nobody;
  /// Throws where the hook has returned.
  const StepContext& lent() const {
    if (caller_ == &nobody) [[unlikely]]
      gone();
    return *this;
  }
  [[noreturn, gnu::cold]] void gone() const;

  Clock clock_;
  std::int64_t number_ = 0;  ///< of the current step, from 1; keeps after the clock moved
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
  const Caller* caller_ = nullptr;  ///< the hook that runs; null, in tests of a plugin alone: nobody asks
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
