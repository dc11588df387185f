// The training loop: the executable form of events.md. It knows slots, events and state, and no strategy.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/loss.hpp>
#include <trainyard/metric.hpp>
#include <trainyard/network.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/schedule.hpp>
#include <trainyard/sink.hpp>
#include <trainyard/state.hpp>

#include <trainyard/event.hpp>
#include "core/engine/events/bus.hpp"
#include "core/engine/train/data_loader.hpp"
#include "core/engine/train/filled.hpp"
#include "core/engine/train/loop_context.hpp"
#include "core/engine/train/loss_meter.hpp"
#include "core/engine/train/loss_scaler.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

using MetricValues = std::map<std::string, double, std::less<>>;

/// A split to evaluate on.
struct EvaluationSplit {
  std::string name;  ///< "val", "test"
  data::Loader* loader = nullptr;
};

/// How the loop has its state saved.
struct CheckpointParts {
  std::int64_t every =
      0;  ///< steps, and one more at the end of the training; 0: only on interruption and request
  std::function<void()> save;  ///< takes what the run is now; none: nothing is ever saved
  std::function<bool()> committed = [] { return false; };  ///< true once for each that reached the disk
  std::function<void()> drain = [] {};                     ///< waits for those on their way
};

/// What the loop runs on; all of it outlives the loop. Whoever owns it changes it between steps only: that is
/// how plugins are swapped.
struct LoopParts {
  const config::RunConfig* config = nullptr;
  events::Bus* bus = nullptr;
  LoopContext* context = nullptr;
  at::Device device = at::kCPU;
  Filled<Network> network;
  Filled<Loss> loss;
  Filled<Optimizer> optimizer;
  Filled<const ScheduleCurve> schedule;
  Filled<data::Loader> train;
  std::vector<EvaluationSplit>
      evaluations;                      ///< the first is evaluated on eval_interval, all of them at the end
  std::vector<Filled<Metric>> metrics;  ///< values are reported under the ids of their slots
  RunScale scale;
  CheckpointParts checkpoint;
  /// Called at safe points, after the hooks: commands of users, swaps. The run may look different afterwards.
  std::function<void()> control = [] {};
  /// A step failed: true where the run went back to a safe point before it, and goes on from there.
  std::function<bool(const Error&)> recover = [](const Error&) { return false; };
  /// Called ahead of everything that may write weights or the optimizer's state: until then others read them.
  std::function<void()> settle = [] {};
  /// Called once the training and its last evaluations are done: what is not settled yet has to be. May
  /// throw, and have the run go back.
  std::function<void()> closing = [] {};
  /// Whether training metrics of the step of that number are wanted.
  std::function<bool(std::int64_t step)> log_due = [](std::int64_t) { return false; };
  /// Called at safe points; throws what a plugin's own threads threw.
  std::function<void()> check_threads = [] {};
  /// Set from a signal handler: end at the next step boundary.
  const std::atomic<int>* signal = nullptr;
  /// Metrics, off the loop's hands; must not block.
  std::function<void(Record)> record = [](const Record&) {};
  /// One line of the journal: who, what, why.
  std::function<void(std::string_view who, std::string_view what, std::string_view why)> journal =
      [](std::string_view, std::string_view, std::string_view) {};
};

/// Why a fit ended.
enum class Ending : std::uint8_t { completed, stopped, early_stopping, wall_time, signal };

/// Seconds inside the plugins that the loop calls itself, on the steps that were timed.
struct PhaseSeconds {
  double data = 0, model = 0, loss = 0, backward = 0, optimizer = 0;
  std::int64_t timed_steps = 0;
};

class Loop {
 public:
  explicit Loop(LoopParts& parts);

  /// Trains to the end of the budget or until something stops it; again, goes on from there. `restore` is
  /// called once fit_start has fired, and may load what was saved. Throws Error; the events' brackets are
  /// closed then.
  Ending fit(const std::function<void()>& restore = [] {});

  /// Everything that the loop itself needs in order to go on: clock, requests, running means, counters. At a
  /// safe point, after its hooks.
  void save(StateWriter& state) const;
  void load(const State& state);

  /// Within LoopParts::control: as a hook's request would.
  void request(Control control, std::string_view who, std::string_view why);
  /// Within LoopParts::control: takes a checkpoint now.
  void checkpoint();
  /// Within LoopParts::control: tells hooks of the checkpoints that have reached the disk.
  void settle_checkpoints();
  /// The metric values of one pass over a split: "val/loss", "val/accuracy", ... Empty where a signal cut it
  /// short.
  MetricValues evaluate(const EvaluationSplit& split);
  /// The same, and no sink is told; what hooks make of it is the caller's to undo. Within LoopParts::control.
  MetricValues look(const EvaluationSplit& split);

  const std::vector<EvaluationSplit>& evaluations() const { return parts_.evaluations; }
  const Clock& clock() const { return context_.clock_; }
  /// Steps that the optimizer took, which the schedule is read at; skipped ones are not among them.
  std::int64_t updates() const { return updates_; }
  /// The last value of everything that was reported.
  const MetricValues& latest() const { return latest_; }
  /// Seconds of training, those before a resume included.
  double seconds_trained() const { return seconds_before_ + elapsed(); }
  const PhaseSeconds& seconds() const { return seconds_; }
  /// Host::metric of any plugin: goes out with the next log point.
  void add_metric(std::string name, double value) { extra_[std::move(name)] = value; }

 private:
  using SteadyClock = std::chrono::steady_clock;

  void fire(Event event) {
    if (weights_written_at(event)) parts_.settle();
    parts_.bus->fire(event, context_);
  }
  /// Fires `open`, runs `body`, fires `close`, which the body may choose; `close` also where `body` throws.
  template <class Body>
  void bracket(Event open, const Event& close, Body&& body);
  template <class Body>
  void close_after(const Event& close, Body&& body);

  template <class Body>
  void recovering(Body&& body);
  void train();
  void evaluate_all();
  void run_epoch();
  void run_steps();
  void run_step();
  void run_micro(Batch& batch, const StepPart& part);
  void update(data::StepData& step);
  void set_rates();
  void compute_gradients(data::StepData& step);
  bool repeated();
  bool prepare_gradients();
  void after_batch();
  void log_point();
  std::int64_t patience() const;
  void watch(const MetricValues& values);
  bool finished();
  [[noreturn]] void refuse_loss(double loss) const;
  void poll();
  void interrupt(Ending ending);
  void reset_metrics();
  void update_metrics(const at::Tensor& output, const at::Tensor& loss, const Batch& batch);
  template <class Take>
  void each_metric_value(const std::string& prefix, Take&& take);
  void move_to_device(Batch& batch) const;
  at::Tensor backward_root(double factor);
  bool signalled() const {
    return parts_.signal != nullptr && parts_.signal->load(std::memory_order_relaxed) != 0;
  }
  double elapsed() const { return std::chrono::duration<double>(SteadyClock::now() - started_).count(); }

  LoopParts& parts_;
  LoopContext& context_;
  std::vector<at::Tensor> parameters_;
  std::optional<LossScaler> scaler_;
  LossMeter loss_meter_;
  PhaseSeconds seconds_;
  MetricValues latest_, extra_;

  std::int64_t updates_ = 0;
  std::int64_t evaluate_every_ = 0;
  std::int64_t last_evaluated_ = -1;
  bool evaluation_due_ = false;  ///< after this step; stays where a signal cuts it short
  std::int64_t last_saved_ = -1;
  bool arrived_ = false;         ///< at a safe point, by what was loaded and not by a step
  double seconds_before_ = 0.0;  ///< of training, before the run was resumed
  bool logging_ = false;         ///< this step ends at a log point
  bool timing_ = false;          ///< this step is one of those that are timed
  at::Tensor gradient_norm_;
  at::Tensor root_;  ///< what backward starts from, kept while its factor stays
  double root_factor_ = 0.0;
  SteadyClock::time_point started_, logged_at_;
  std::int64_t samples_logged_ = 0;
  std::optional<Ending> ending_;
  bool end_epoch_ = false;
  bool in_epoch_ = false;  ///< epoch_start has fired and epoch_end has not
  double best_ =
      -std::numeric_limits<double>::infinity();  ///< watched metric, its sign such that more is better
  std::int64_t evaluations_without_gain_ = 0;
};

}  // namespace trainyard::train
