// executor/1: runs a step, from a fetched batch to updated weights.
//
// The host keeps the clock, epochs, data, log points, evaluations, safe points, checkpoints and the end of a
// run. An executor does what lies in between: it takes the micro-batches of a step through the network, and
// decides when the optimizer updates the weights. The plain way, which `eager` goes (helpers/eager.hpp), is
//
//   do
//     for (std::size_t i = 0; i < work.micros.size(); ++i) bench.backward(work, i);
//   while (bench.update() == Update::repeat);
//
// All calls come from the loop's thread, with autograd switched on in `step` and off elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/contract.hpp>
#include <trainyard/error.hpp>
#include <trainyard/event.hpp>
#include <trainyard/forward_context.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/value.hpp>

TRAINYARD_CONTRACT("executor.hpp");

namespace trainyard {

class Loss;
class Network;
class Optimizer;

/// The batch of a step, in micro-batches; of several ranks, those of this one. Borrowed for Executor::step.
struct StepWork {
  std::span<Batch> micros;       ///< on the run's device, in the sampler's order
  double weight = 0.0;           ///< of the whole batch; an estimate where several ranks train
  std::int64_t step = 0;         ///< number of the step in the run, from 0
  std::int64_t before = 0;       ///< samples that the run took before the step
  std::int64_t samples = 0;      ///< samples of the whole step
  std::int64_t first = 0;        ///< samples of the step that come before these micro-batches
  std::int64_t first_micro = 0;  ///< number of the first of these micro-batches in the whole step

  /// Returns the share of a micro-batch in the step's loss: its weight over that of the whole batch.
  double share(std::size_t micro) const { return weight > 0.0 ? micros[micro].weight / weight : 0.0; }

  /// Returns the context that the network gets for the training pass of a micro-batch.
  ForwardContext pass(std::size_t micro) const {
    StepPart part{.first = first, .count = micros[micro].size(), .samples = samples, .before = before};
    for (std::size_t i = 0; i < micro; ++i) part.first += micros[i].size();
    return {.training = true,
            .step = static_cast<std::uint64_t>(step),
            .micro = static_cast<std::uint32_t>(first_micro) + static_cast<std::uint32_t>(micro),
            .part = part};
  }
};

/// The output of a network for a batch, and its loss.
struct Graded {
  at::Tensor output;
  at::Tensor loss;  ///< float scalar, the mean over Batch::weight items; defined once it is computed
};

/// The result of an update.
enum class Update : std::uint8_t {
  done,
  skipped,  ///< fp16 overflowed, or a plugin asked for it: the weights are as they were
  repeat,   ///< a plugin wants the gradients of the same batch again, at the weights as they are now (SAM)
};

/// The schedule's values for an update.
struct Rate {
  double factor = 1.0;             ///< factor on the base learning rate of each group
  std::optional<double> momentum;  ///< replaces the optimizer's own, where the schedule cycles it
};

/// A forward pass of the executor's own, called like Network::forward.
using ForwardPass = std::function<at::Tensor(const Batch&, const ForwardContext&)>;

/// The plugin in a slot of the run.
struct Filling {
  std::string type;  ///< name of the plugin
  Table options;     ///< given by the run file; the others are at their defaults
};

/// The host's side of an executor, which it outlives. Loop thread.
class Workbench {
 public:
  virtual ~Workbench() = default;

  // The host's own way. Errors of model, loss, optimizer and schedule come out with the name of their slot.

  /// Runs one micro-batch with its events, forward, loss and backward: adds its share to the gradients. The
  /// first of a step, micro 0, drops the gradients that are there. `forward` computes the output in place of
  /// the network, for autograd as the network does.
  virtual void backward(StepWork& work, std::size_t micro, const ForwardPass& forward = {}) = 0;
  /// Updates the weights from the gradients of a step: unscales and clips, sets the rates, fires before_step,
  /// calls `apply` - by default Optimizer::step - and fires after_step or step_skipped. Throws PluginError
  /// where the step is repeated for ever.
  virtual Update update(const std::function<void()>& apply = {}) = 0;

  // With several ranks update() sums gradients over them. With a single one neither of these does anything.

  /// Says that the gradient of the parameter of that number in Network::parameters() is complete for the step
  /// of the next update(): it may leave for the other ranks at once and belongs to them until update(). It
  /// lies there, dense and contiguous, or there is none. Call it once per update, or not at all: the rest
  /// leaves with update(). Any thread, one at a time, while the loop's thread calls nothing of the bench.
  virtual void is_whole(std::size_t /*parameter*/) {}
  /// Says that the next update() is of a step that was left in flight, and not of the one under way: means
  /// are over its batch. All ranks say the same at the same point.
  virtual void update_is_of(const StepWork& /*work*/) {}

  // Parts for an executor that goes a way of its own.

  virtual Network& network() = 0;
  virtual Loss& loss() = 0;
  virtual Optimizer& optimizer() = 0;
  /// Runs the network, or `forward` in its place, and then the loss, in the precision of the run; under
  /// autograd where gradients are on. Fires no event.
  virtual Graded grade(const Batch& batch, const ForwardContext& pass, const ForwardPass& forward = {}) = 0;
  /// Returns a twin of the network (network.hpp) with the dropout of the run, until model or dropout are
  /// replaced. The dropout serves one call at a time. Throws PluginError where the network has no graph.
  virtual std::unique_ptr<Network> twin() = 0;
  /// Does the same as grade(batch, pass), by a twin. Any thread; several may be in it at once, each with a
  /// twin of its own.
  virtual Graded grade(Network& twin, const Batch& batch, const ForwardContext& pass) = 0;
  /// Returns the factor of a loss, beside its share, ahead of backward; update() divides by it. It is 1
  /// except for fp16.
  virtual double loss_scale() const = 0;
  /// Counts a training pass in train/loss, and in the training metrics where the step is logged. Throws
  /// NumericError where the loss is not finite. Call it once for each micro-batch, and not in a repetition.
  virtual void report(const Graded& graded, const Batch& batch) = 0;
  /// Returns the schedule's values for the update of that number, from 0.
  virtual Rate rate(std::int64_t update) const = 0;
  /// Returns how many updates the run has done, which is the number of the next one.
  virtual std::int64_t updates() const = 0;

  // An executor that bypasses backward, update and grade has to do the following itself, or to refuse it.

  /// Clips gradients in place as trainer.grad_clip says, as if there were no others. Any thread.
  virtual void clip(std::vector<at::Tensor>& gradients) const = 0;
  /// Returns whether the passes of the run are in another precision than that of its weights.
  virtual bool autocasts() const = 0;
  /// Returns the number of micro-batches in a step of this rank; the last step of an epoch may have fewer.
  virtual std::int64_t accumulation() const = 0;
  /// Returns whether the run has a dropout; parts of its network that an executor cuts (cut.hpp) have none.
  virtual bool drops() const = 0;
  /// Returns the plugin of a slot with a single plugin: "optimizer". Throws PluginError for another slot.
  virtual Filling filling(std::string_view slot) const = 0;

  // The following is for executors of several models side by side (Executor::members).

  /// Does the same for one member: counts it in "MEMBER/train/loss" and the training metrics under such
  /// names. The executor has to deal with numbers that are not finite.
  virtual void report(const Graded& graded, const Batch& batch, std::size_t member);
  /// Returns the resolved run file with these assignments ("optimizer.lr=1e-3", as after --set), checked like
  /// any. Throws ConfigError.
  virtual Table run_file(const std::vector<std::string>& set) const;
  /// Returns a network as the run's model builds it from a seed, on the run's device, with the run's dropout
  /// drawing from that seed. Destroy it before model and dropout go: no later than the next open().
  virtual std::unique_ptr<Network> build(std::uint64_t seed) = 0;

  /// Returns whether a hook is called at an event in this run.
  virtual bool heard(Event event) const = 0;
  /// Fires one of micro_events that the manifest declares, with the micro-batch and what is known of it,
  /// which hooks may change. Where an executor throws, the host closes what it has opened and not closed.
  virtual void fire(Event event, StepWork& work, std::size_t micro, Graded& graded) = 0;
  /// Returns true once where a hook asked for it: Control::skip_micro.
  virtual bool take(Control control) = 0;
};

class Executor : public Plugin {
 public:
  static constexpr Kind kind{"executor", 1};

  /// Says what the host is about to do.
  enum class Pause : std::uint8_t {
    evaluation,
    checkpoint,
    swap,
    exchange,  ///< a swap to an executor of another type: this one's state is not carried over
    end,
  };

  /// Throws where the executor cannot train the network on so many ranks, two or more. Called before open(),
  /// and by validation, where none of the ranks is there.
  virtual void check_ranks(Workbench&, std::int64_t /*ranks*/) const {}

  /// Called before the first step, with all state loaded; again where model, loss or optimizer were replaced
  /// in the running training, or all state was: whatever was made from the old ones is void. Throws where the
  /// executor cannot run them: at the beginning that ends the run, at a swap it causes a rollback.
  virtual void open(Workbench&) {}

  /// Runs the step of one batch. It may update by gradients of earlier steps: work may be left in flight.
  virtual void step(Workbench& bench, StepWork& work) = 0;

  /// Grades a batch of an evaluation, at the weights as they are.
  virtual Graded evaluate(Workbench& bench, const Batch& batch, const ForwardContext& pass) {
    return bench.grade(batch, pass);
  }

  /// Finishes the work in flight; afterwards none is left, or it is in what save() writes. Of several ranks a
  /// checkpoint holds what the first one saves, and all of them load that.
  virtual void settle(Workbench&, Pause) {}

  /// Returns whether several ranks share a step by parts of the network, not by parts of its batch. Each is
  /// given the whole batch then, and the host sums no gradients: update() calls `apply` right away. Any
  /// rank's report counts, once for all. When settle() returns, all ranks have all weights and buffers, and
  /// the whole state of optimizer and executor; events from after_step on find the weights as the executor
  /// left them. Asked at any time after construction, with one answer; it means nothing in a run of one rank.
  virtual bool divides_network() const { return false; }

  // An executor may train several models, each with metrics of its own: "3/val/loss". Network and optimizer
  // of the run, and metrics without a number, are the leader's. With one member there are no numbers.

  virtual std::size_t members() const { return 1; }
  virtual std::size_t leader() const { return 0; }
  /// Evaluates a batch by all members: an undefined loss is of one that is no longer trained.
  virtual std::vector<Graded> evaluate_all(Workbench& bench, const Batch& batch, const ForwardContext& pass) {
    return {evaluate(bench, batch, pass)};
  }
};

// The defaults are for a bench of one model.
inline void Workbench::report(const Graded&, const Batch&, std::size_t) {
  throw PluginError("this bench trains a single model");
}
inline Table Workbench::run_file(const std::vector<std::string>&) const {
  throw PluginError("this bench has no run file");
}

}  // namespace trainyard
