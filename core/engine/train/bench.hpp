// The workbench of the run's executor: the host's part of a step, from micro-batches on their device to
// updated weights, and the state of it that must be saved.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <trainyard/executor.hpp>
#include <trainyard/state.hpp>

#include "core/engine/train/brackets.hpp"
#include "core/engine/train/loop_parts.hpp"
#include "core/engine/train/loss_meter.hpp"
#include "core/engine/train/loss_scaler.hpp"
#include "core/engine/train/phase_seconds.hpp"
#include "core/engine/train/rank_step.hpp"

namespace trainyard::train {

class Bench final : public Workbench {
 public:
  /// Both arguments outlive it.
  Bench(LoopParts& parts, PhaseSeconds& seconds);

  /// Opens the executor for the parts and the state as they are now.
  void open();
  /// Throws if the executor cannot train the network on so many ranks.
  void check_ranks(std::int64_t ranks);
  /// Opens the executor again if it was open, after parts or state were replaced.
  void reopen() {
    if (is_open_) open();
  }
  bool is_open() const { return is_open_; }
  /// Has the executor run a step; if `logging`, training metrics of it are taken. Brackets that the executor
  /// leaves open when it throws are closed.
  void step(StepWork& work, bool logging);
  /// The same on several ranks. `skip`: this rank leaves the batch out. `ends`: bits, behind those of
  /// Control, that the ranks agree upon (RankStep::agreed).
  void step_together(StepWork& work, bool logging, bool skip, unsigned ends);
  RankStep& ranks() { return ranks_; }
  const RankStep& ranks() const { return ranks_; }
  /// Drops all that is left of a step that is to be done again.
  void drop_step();
  Graded evaluate(const Batch& batch, const ForwardContext& pass);
  /// Returns the results of all members of an executor that has several.
  std::vector<Graded> evaluate_all(const Batch& batch, const ForwardContext& pass);
  /// Has the executor finish what is in flight, and the optimizer what it has put off.
  void settle(Executor::Pause pause);

  /// Returns the mean training loss since the last call; throws NumericError if it is not finite.
  std::optional<double> take_loss();
  /// Returns the same for one of several members, unchecked.
  std::optional<double> take_loss(std::size_t member);
  /// Returns the norm of the last step that was clipped by norm, before clipping; undefined if there is none.
  const at::Tensor& gradient_norm() const { return gradient_norm_; }
  std::optional<double> fp16_scale() const;

  void save(StateWriter& state) const;
  void load(const StateReader& state);

  // The executor's interface (executor.hpp):
  void backward(StepWork& work, std::size_t micro, const ForwardPass& forward) override;
  Update update(const std::function<void()>& apply) override;
  void is_whole(std::size_t parameter) override;
  void update_is_of(const StepWork& work) override { ranks_.start(work, loss_scale()); }
  Network& network() override { return *parts_.network.plugin; }
  Loss& loss() override { return *parts_.loss.plugin; }
  Optimizer& optimizer() override { return *parts_.optimizer.plugin; }
  Graded grade(const Batch& batch, const ForwardContext& pass, const ForwardPass& forward) override;
  std::unique_ptr<Network> twin() override;
  Graded grade(Network& twin, const Batch& batch, const ForwardContext& pass) override;
  double loss_scale() const override { return fp16_scale().value_or(1.0); }
  void report(const Graded& graded, const Batch& batch) override;
  void report(const Graded& graded, const Batch& batch, std::size_t member) override;
  Table run_file(const std::vector<std::string>& set) const override;
  std::unique_ptr<Network> build(std::uint64_t seed) override;
  Rate rate(std::int64_t update) const override;
  std::int64_t updates() const override { return updates_; }
  void clip(std::vector<at::Tensor>& gradients) const override;
  bool autocasts() const override;
  std::int64_t accumulation() const override { return parts_.config->train.accumulation; }
  bool drops() const override { return parts_.config->find("model.dropout") != nullptr; }
  Filling filling(std::string_view slot) const override;
  bool heard(Event event) const override { return parts_.bus->heard(event); }
  void fire(Event event, StepWork& work, std::size_t micro, Graded& graded) override;
  bool take(Control control) override { return context_.take(control); }

 private:
  template <class Call>
  decltype(auto) in_executor(Call&& call);
  template <class Call>
  decltype(auto) in_host(Call&& call);
  void enter(StepWork& work, std::size_t micro);
  void run_micro(Batch& batch, const ForwardContext& pass, const ForwardPass& forward);
  at::Tensor forward(const Batch& batch, const ForwardContext& pass, const ForwardPass& forward);
  at::Tensor loss_of(const at::Tensor& output, const Batch& batch);
  at::Tensor backward_root(double factor);
  void take_shared(const RankStep::Loss& loss);
  bool sum_up();
  SkipReason asked_reason();
  bool prepare_gradients();
  void set_rates(const Rate& rate);
  void update_weights();
  void catch_up();
  Update count_repeat();
  void count(const at::Tensor& loss, const Batch& batch);
  void take_metrics(const MetricSlots& metrics, const at::Tensor& output, const at::Tensor& loss,
                    const Batch& batch);
  [[noreturn]] void refuse_loss(double loss) const;

  LoopParts& parts_;
  LoopContext& context_;
  PhaseSeconds& seconds_;
  Brackets brackets_;
  RankStep ranks_;
  std::vector<at::Tensor> parameters_;
  std::optional<LossScaler> scaler_;
  LossMeter loss_meter_;
  std::vector<LossMeter> member_losses_;  ///< set if the executor has several members
  std::int64_t updates_ = 0;
  Rate rate_;                 ///< of the last update that was tried
  std::optional<double> lr_;  ///< first group's rate at that update, from a checkpoint
  bool logging_ = false;      ///< training metrics of this step are taken
  at::Tensor gradient_norm_;
  at::Tensor root_;  ///< initial gradient of backward, kept while its factor stays
  double root_factor_ = 0.0;

  bool is_open_ = false;       ///< the executor is open
  std::vector<Event> open_;    ///< brackets that the executor has opened by fire()
  std::exception_ptr thrown_;  ///< an error of the host, on its way through the executor
};

}  // namespace trainyard::train
