// The training loop: the executable form of events.md. It knows slots, events and state, and no strategy.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/state.hpp>

#include "core/engine/train/bench.hpp"
#include "core/engine/train/brackets.hpp"
#include "core/engine/train/loop_parts.hpp"

namespace trainyard::train {

using MetricValues = std::map<std::string, double, std::less<>>;

/// Under which the state of a loop has what was asked of it, with the name of who asked behind.
inline constexpr const char* requests_of = "requests/";
inline constexpr const char* waiting_of = "waiting/";

/// How far what belongs to a step has come, in this order.
enum class Stage : std::uint8_t {
  stepped,    ///< the weights are updated, the clock has moved
  logged,     ///< the log point, if there is one
  evaluated,  ///< the evaluation, if there is one
  polled,     ///< the safe point: hooks, commands
  saving,     ///< a checkpoint is due
  settled,    ///< all of it
};

/// Where the loop of a rank stands between two changes of the weights.
struct Position {
  std::int64_t step = 0;  ///< done
  Stage stage = Stage::settled;
  unsigned agreed = 0;  ///< what the ranks have agreed upon in that step

  auto order() const { return std::pair(step, stage); }
};

/// Why a fit ended.
enum class Ending : std::uint8_t { completed, stopped, wall_time, signal };

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

  /// Within LoopHost::at_safe_point: as a hook's request would.
  void request(Control control, std::string_view who, std::string_view why);
  /// Within LoopHost::at_safe_point: takes a checkpoint now.
  void checkpoint();
  /// Within LoopHost::at_safe_point: tells hooks of the checkpoints that have reached the disk.
  void settle_checkpoints();
  /// The newest that hooks were told of.
  const Saved& last_checkpoint() const { return last_checkpoint_; }
  /// The metric values of one pass over a split: "val/loss", "val/accuracy", ... Empty where a signal cut it
  /// short.
  MetricValues evaluate(const EvaluationSplit& split);
  /// The same, and nobody is told; what hooks make of it is the caller's to undo, by load().
  /// Within LoopHost::at_safe_point.
  MetricValues look(const EvaluationSplit& split);

  // Of several ranks, one of which was lost:
  Position position() const { return {context_.clock_.step, stage_, bench_.agreed()}; }
  /// Forgets the step under way, and goes on from its position.
  void drop_step();
  /// After load(), of what another rank has saved: goes on from where that one stands.
  void take_position(const Position& position);

  const std::vector<EvaluationSplit>& evaluations() const { return parts_.evaluations; }
  const Clock& clock() const { return context_.clock_; }
  /// What the executor works at.
  Bench& bench() { return bench_; }
  /// The last value of everything that was reported.
  const MetricValues& latest() const { return latest_; }
  /// Seconds of training, those before a resume included.
  double seconds_trained() const { return seconds_before_ + elapsed(); }
  const PhaseSeconds& seconds() const { return seconds_; }
  /// Whether a signal says that the training is to end; of several ranks, once all of them know.
  bool signalled() const { return parts_.world ? (bench_.agreed() & by_signal) != 0 : caught(); }
  /// Of several ranks: whether one has something that all have to do at this safe point.
  bool has_orders() const { return parts_.world != nullptr && (bench_.agreed() & by_orders) != 0; }
  distributed::World* world() const { return parts_.world; }
  /// Whether this process has caught one.
  bool caught() const {
    return parts_.signal != nullptr && parts_.signal->load(std::memory_order_relaxed) != 0;
  }
  /// Host::metric of any plugin: goes out with the next log point.
  void add_metric(std::string name, double value) { extra_[std::move(name)] = value; }

 private:
  using SteadyClock = std::chrono::steady_clock;
  /// What ends a run and one rank may notice before the others, behind the bits of Control.
  enum Ends : unsigned {
    by_signal = 1U << control_count,
    by_wall_time = by_signal << 1,
    by_time = by_signal << 2,
    by_orders = by_signal << 3
  };

  template <class Body>
  void recovering(Body&& body);
  void train();
  void evaluate_all();
  void run_epoch();
  void run_steps();
  void run_step();
  double weight_of(const data::StepData& data) const;
  void after_batch();
  void log_point();
  void reset_metrics();
  template <class TakeLoss, class Put>
  void each_metric(const std::string& of, const TakeLoss& take_loss, const Put& put);
  Graded evaluate(const Batch& batch, const ForwardContext& pass, std::vector<LossMeter>& losses);
  void end_pass(LossMeter& losses);
  MetricValues pass_over(const EvaluationSplit& split);
  bool finished();
  void poll();
  unsigned ends() const;
  void interrupt(Ending ending);
  void rest(Executor::Pause pause);
  void share_buffers();
  void forget_step();
  double elapsed() const { return std::chrono::duration<double>(SteadyClock::now() - started_).count(); }

  LoopParts& parts_;
  LoopContext& context_;
  Brackets brackets_;
  PhaseSeconds seconds_;
  Bench bench_;
  MetricValues latest_, extra_;

  unsigned shared_ = 0;  ///< controls that ranks agree upon
  std::int64_t evaluate_every_ = 0;
  std::int64_t look_every_ = 0;  ///< for undeclared writes
  std::int64_t last_evaluated_ = -1;
  bool evaluation_due_ = false;  ///< after this step; stays where a signal cuts it short
  std::int64_t last_saved_ = -1;
  Stage stage_ = Stage::settled;
  Saved last_checkpoint_;
  bool joined_ = false;          ///< where other ranks stand, in the place of one that was lost
  bool arrived_ = false;         ///< at a safe point, by what was loaded and not by a step
  double seconds_before_ = 0.0;  ///< of training, before the run was resumed
  SteadyClock::time_point started_, logged_at_;
  std::int64_t samples_logged_ = 0;
  std::optional<Ending> ending_;
  bool end_epoch_ = false;
  bool in_epoch_ = false;  ///< epoch_start has fired and epoch_end has not
  bool looking_ = false;   ///< nothing comes of what hooks ask for
};

}  // namespace trainyard::train
