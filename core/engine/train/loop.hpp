// The training loop: the executable form of events.md. It knows slots, events and state, but no strategy.
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

/// Prefixes of requests in the state of a loop, each followed by the name of who asked.
inline constexpr const char* requests_of = "requests/";
inline constexpr const char* waiting_of = "waiting/";

/// How much of the work that belongs to a step is done, in this order.
enum class Stage : std::uint8_t {
  stepped,    ///< the weights are updated and the clock has moved
  logged,     ///< the log point is done, if there is one
  evaluated,  ///< the evaluation is done, if there is one
  polled,     ///< the safe point is done: hooks, commands
  saving,     ///< a checkpoint is due
  settled,    ///< all of it is done
};

/// The place of a rank's loop between two changes of the weights.
struct Position {
  std::int64_t step = 0;  ///< steps done
  Stage stage = Stage::settled;
  unsigned agreed = 0;  ///< bits that the ranks have agreed upon in that step

  auto order() const { return std::pair(step, stage); }
};

/// The reason why a fit ended.
enum class Ending : std::uint8_t { completed, stopped, wall_time, signal };

class Loop {
 public:
  explicit Loop(LoopParts& parts);

  /// Trains to the end of the budget or until something stops it; a second call goes on from there. `restore`
  /// is called once fit_start has fired, and may load saved state. Throws Error, after closing the events'
  /// brackets.
  Ending fit(const std::function<void()>& restore = [] {});

  /// Saves everything that the loop itself needs in order to go on: clock, requests, running means, counters.
  /// Called at a safe point, after its hooks.
  void save(StateWriter& state) const;
  void load(const State& state);

  /// Within LoopHost::at_safe_point: makes a request as a hook would.
  void request(Control control, std::string_view who, std::string_view why);
  /// Within LoopHost::at_safe_point: takes a checkpoint now.
  void checkpoint();
  /// Within LoopHost::at_safe_point: tells hooks of the checkpoints that have reached the disk.
  void settle_checkpoints();
  /// Returns the newest checkpoint that hooks were told of.
  const Saved& last_checkpoint() const { return last_checkpoint_; }
  /// Runs an evaluation pass over a split. Returns its metrics: "val/loss", "val/accuracy", ...; empty if a
  /// signal cut it short.
  MetricValues evaluate(const EvaluationSplit& split);
  /// The same, unreported; the caller undoes by load() what hooks made of it. Within LoopHost::at_safe_point.
  MetricValues evaluate_silently(const EvaluationSplit& split);

  // For rank recovery:
  Position position() const { return {context_.clock_.step, stage_, bench_.ranks().agreed()}; }
  /// Forgets the step under way, and goes on from its position.
  void drop_step();
  /// After load() of what another rank has saved: goes on from where that rank stands.
  void take_position(const Position& position);

  const std::vector<EvaluationSplit>& evaluations() const { return parts_.evaluations; }
  const Clock& clock() const { return context_.clock_; }
  /// Returns the executor's workbench.
  Bench& bench() { return bench_; }
  /// Returns the last value of everything that was reported.
  MetricValues& latest() { return latest_; }
  /// Returns seconds of training, including those before a resume.
  double seconds_trained() const { return seconds_before_ + elapsed(); }
  const PhaseSeconds& seconds() const { return seconds_; }
  /// Returns true if a signal ends the training; on several ranks, once all of them know.
  bool signalled() const { return parts_.world ? (bench_.ranks().agreed() & by_signal) != 0 : caught(); }
  /// On several ranks: returns true if one has something that all have to do at this safe point.
  bool has_orders() const { return parts_.world != nullptr && (bench_.ranks().agreed() & by_orders) != 0; }
  distributed::World* world() const { return parts_.world; }
  /// Returns true if this process has caught a signal.
  bool caught() const {
    return parts_.signal != nullptr && parts_.signal->load(std::memory_order_relaxed) != 0;
  }
  /// Host::metric of any plugin: the value is reported at the next log point.
  void add_metric(std::string name, double value) { extra_[std::move(name)] = value; }

 private:
  using SteadyClock = std::chrono::steady_clock;
  /// Reasons to end a run that one rank may notice before the others: bits behind those of Control.
  enum Ends : unsigned {
    by_signal = 1U << control_count,
    by_wall_time = by_signal << 1,
    by_time = by_signal << 2,
    by_orders = by_signal << 3
  };

  template <class Body>
  void recovering(Body&& body);
  void train();
  void run_epoch();
  void run_steps();
  void run_step();
  void after_batch();
  void log_point();
  Graded evaluate(const Batch& batch, const ForwardContext& pass, std::vector<LossMeter>& losses);
  MetricValues pass_over(const EvaluationSplit& split);
  bool finished();
  void poll();
  unsigned ends() const;
  void interrupt(Ending ending);
  void settle(Executor::Pause pause);
  void forget_step();
  double elapsed() const { return std::chrono::duration<double>(SteadyClock::now() - started_).count(); }

  LoopParts& parts_;
  LoopContext& context_;
  Brackets brackets_;
  PhaseSeconds seconds_;
  Bench bench_;
  MetricValues latest_, extra_;

  unsigned shared_ = 0;  ///< controls that the ranks agree upon
  std::int64_t evaluate_every_ = 0;
  std::int64_t look_every_ = 0;  ///< steps between looks for undeclared writes
  std::int64_t last_evaluated_ = -1;
  bool evaluation_due_ = false;  ///< after this step; it stays set if a signal cuts the evaluation short
  std::int64_t last_saved_ = -1;
  Stage stage_ = Stage::settled;
  Saved last_checkpoint_;
  bool joined_ = false;          ///< this process replaced a lost rank and stands where the others do
  bool arrived_ = false;         ///< at a safe point, through a load and not through a step
  double seconds_before_ = 0.0;  ///< of training, before the run was resumed
  SteadyClock::time_point started_, logged_at_;
  std::int64_t samples_logged_ = 0;
  std::optional<Ending> ending_;
  bool end_epoch_ = false;
  bool in_epoch_ = false;  ///< epoch_start has fired, but not epoch_end
  bool looking_ = false;   ///< requests of hooks have no effect
};

}  // namespace trainyard::train
