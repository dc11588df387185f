// executor/1: how a step is run, from a fetched batch to updated weights.
//
// The host keeps the clock, epochs, data, log points, evaluations, safe points, checkpoints and the end of a
// run. An executor has what lies in between: how the micro-batches of a step go through the network, and when
// the optimizer updates the weights. The plain way, which `eager` goes (helpers/eager.hpp), is
//
//   do
//     for (std::size_t i = 0; i < work.micros.size(); ++i) bench.backward(work, i);
//   while (bench.update() == Update::repeat);
//
// All calls come from the loop's thread, with the graph of autograd switched on in `step` and off elsewhere.
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

/// The batch of a step, in micro-batches: where several ranks train, those of this one. Borrowed for the length
/// of Executor::step.
struct StepWork {
  std::span<Batch> micros;       ///< on the run's device, in the sampler's order
  double weight = 0.0;           ///< what shares are of: the sum of theirs, of several ranks an estimate
  std::int64_t step = 0;         ///< of the run, from 0
  std::int64_t before = 0;       ///< samples that the run took before the step
  std::int64_t samples = 0;      ///< of the whole step
  std::int64_t first = 0;        ///< of them come before these micro-batches
  std::int64_t first_micro = 0;  ///< number of the first of these in the whole step

  /// Share of a micro-batch in the step's loss: its weight over that of the whole batch.
  double share(std::size_t micro) const { return weight > 0.0 ? micros[micro].weight / weight : 0.0; }

  /// What the network is to be told of the training pass of a micro-batch.
  ForwardContext pass(std::size_t micro) const {
    StepPart part{.first = first, .count = micros[micro].size(), .samples = samples, .before = before};
    for (std::size_t i = 0; i < micro; ++i) part.first += micros[i].size();
    return {.training = true,
            .step = static_cast<std::uint64_t>(step),
            .micro = static_cast<std::uint32_t>(first_micro) + static_cast<std::uint32_t>(micro),
            .part = part};
  }
};

/// What a network made of a batch, and what the loss says of it.
struct Graded {
  at::Tensor output;
  at::Tensor loss;  ///< float scalar, the mean over Batch::weight items; defined once it is computed
};

/// What became of an update.
enum class Update : std::uint8_t {
  done,
  skipped,  ///< fp16 overflowed, or a plugin asked for it: the weights are as they were
  repeat,   ///< a plugin wants the gradients of the same batch again, at the weights as they are now (SAM)
};

/// What the schedule says of an update.
struct Rate {
  double factor = 1.0;             ///< on the base learning rate of each group
  std::optional<double> momentum;  ///< in place of the optimizer's own, where the schedule cycles it
};

/// A pass of the executor's own, as Network::forward.
using ForwardPass = std::function<at::Tensor(const Batch&, const ForwardContext&)>;

/// What a slot of the run holds.
struct Filling {
  std::string type;  ///< name of the plugin
  Table options;     ///< that the run file gives; the others are at their defaults
};

/// The host's side of an executor. Outlives it. Loop thread.
class Workbench {
 public:
  virtual ~Workbench() = default;

  // The host's own way. Errors of model, loss, optimizer and schedule come out with the name of their slot.

  /// One micro-batch with its events, forward, loss and backward: adds its share to the gradients. The first
  /// of a step, micro 0, drops the gradients that are there. `forward` computes the output in place of the
  /// network, for autograd as the network does.
  virtual void backward(StepWork& work, std::size_t micro, const ForwardPass& forward = {}) = 0;
  /// From the gradients of a step to its weights: unscales and clips, sets the rates, fires before_step, calls
  /// `apply` - by default Optimizer::step - and fires after_step or step_skipped. Throws PluginError where it
  /// is repeated for ever.
  virtual Update update(const std::function<void()>& apply = {}) = 0;

  // Over several ranks update() has the gradients summed. With a single one neither of these does anything.

  /// Nothing more comes to the gradient of the parameter of that number in Network::parameters(), in the step that
  /// the next update() is of: it may leave for the other ranks at once, while others are computed, and belongs to
  /// them until update(). It lies there, dense and contiguous, or there is none. Once for each update, or not at all: what is
  /// left leaves with update(). Any thread, one at a time, while the loop's thread calls nothing of the bench.
  virtual void is_whole(std::size_t /*parameter*/) {}
  /// The next update() is of a step that was left in flight, and not of the one under way: means are over its
  /// batch. All ranks say the same at the same point.
  virtual void take_up(const StepWork& /*work*/) {}

  // For a way of one's own.

  virtual Network& network() = 0;
  virtual Loss& loss() = 0;
  virtual Optimizer& optimizer() = 0;
  /// Network, or `forward` in its place, then loss, in the precision of the run; under autograd where gradients are on.
  /// Fires nothing.
  virtual Graded grade(const Batch& batch, const ForwardContext& pass, const ForwardPass& forward = {}) = 0;
  /// A twin of the network (network.hpp) with the dropout of the run, until model or dropout are replaced. The
  /// dropout serves one call at a time. Throws PluginError where the network has no graph.
  virtual std::unique_ptr<Network> twin() = 0;
  /// The same as grade(batch, pass) by a twin. Any thread; several may be in it at once, each with a twin of
  /// its own.
  virtual Graded grade(Network& twin, const Batch& batch, const ForwardContext& pass) = 0;
  /// What a loss is multiplied with, beside its share, ahead of backward; update() divides by it. 1 but for
  /// fp16.
  virtual double loss_scale() const = 0;
  /// Counts a training pass in train/loss, and in the training metrics where the step is logged. Throws
  /// NumericError where the loss is not finite. Once for each micro-batch, and not in a repetition.
  virtual void report(const Graded& graded, const Batch& batch) = 0;
  /// Of the update of that number, from 0.
  virtual Rate rate(std::int64_t update) const = 0;
  /// Updates that the run has done: the number of the next one.
  virtual std::int64_t updates() const = 0;

  // What backward, update and grade do by themselves, and a way past them has to do, or to refuse.

  /// Clips gradients in place as trainer.grad_clip says, taking them for all that there are. Any thread.
  virtual void clip(std::vector<at::Tensor>& gradients) const = 0;
  /// Whether the passes of the run are in another precision than that of its weights.
  virtual bool autocasts() const = 0;
  /// Micro-batches in a step of this rank; the last step of an epoch may have fewer.
  virtual std::int64_t accumulation() const = 0;
  /// Whether the run has a dropout: parts of its network that an executor makes (graph/cut.hpp) have none.
  virtual bool drops() const = 0;
  /// Of a slot of the run that a single plugin fills: "optimizer". Throws PluginError for another.
  virtual Filling filling(std::string_view slot) const = 0;

  // Of several models side by side (Executor::members).

  /// The same of one member: counted in "MEMBER/train/loss" and the training metrics under such names. What is not
  /// finite is the executor's business here.
  virtual void report(const Graded& graded, const Batch& batch, std::size_t member);
  /// The resolved run file with these assignments ("optimizer.lr=1e-3", as after --set), checked like any. Throws
  /// ConfigError.
  virtual Table run_file(const std::vector<std::string>& set) const;
  /// A network as the run's model builds it from a seed, on the run's device, with the run's dropout drawing from
  /// that seed. It goes before model and dropout do: no later than the next open().
  virtual std::unique_ptr<Network> build(std::uint64_t seed) = 0;

  /// Whether a hook is called at an event in this run.
  virtual bool heard(Event event) const = 0;
  /// Fires one of micro_events that the manifest declares, with the micro-batch and what is known of it, which
  /// hooks may change. What an executor has opened and not closed when it throws is closed by the host.
  virtual void fire(Event event, StepWork& work, std::size_t micro, Graded& graded) = 0;
  /// True once where a hook asked for it: Control::skip_micro.
  virtual bool take(Control control) = 0;
};

class Executor : public Plugin {
 public:
  static constexpr Kind kind{"executor", 1};

  /// What the host is about to do.
  enum class Pause : std::uint8_t {
    evaluation,
    checkpoint,
    swap,
    exchange,  ///< a swap that puts another kind of executor in this one's place: its state is left
    end,
  };

  /// Throws where it cannot train the network on so many ranks, two or more. Ahead of open(); validation asks it, too,
  /// with none of the ranks there.
  virtual void check_ranks(Workbench&, std::int64_t /*ranks*/) const {}

  /// Ahead of the first step, with all state loaded; again where model, loss or optimizer were replaced in the
  /// running training, or all state was: what was made from them is of no use any more. Throws where the
  /// executor cannot run them: at the beginning that ends the run, at a swap the swap is taken back.
  virtual void open(Workbench&) {}

  /// The step of one batch. The updates may be of gradients of earlier steps: work may be left in flight.
  virtual void step(Workbench& bench, StepWork& work) = 0;

  /// A batch of an evaluation, at the weights as they are.
  virtual Graded evaluate(Workbench& bench, const Batch& batch, const ForwardContext& pass) {
    return bench.grade(batch, pass);
  }

  /// Nothing is in flight afterwards, or it is in what save() writes.
  virtual void settle(Workbench&, Pause) {}

  /// Whether several ranks share a step by parts of the network, not by parts of its batch. Each is given the whole
  /// batch then, and no gradients are summed by the host: update() calls `apply` right away. What any rank reports
  /// counts, once for all. When settle() returns, all ranks have all weights and buffers, and the whole state of the
  /// optimizer and of the executor; after_step and later events of a step find whatever weights the executor has left.
  /// Asked at any time after construction, and always the same; of a run of one rank it says nothing.
  virtual bool divides_network() const { return false; }

  // Several models side by side, each with metrics of its own: "3/val/loss". The network and the optimizer of the
  // run, and metrics without a number, are those of the leading one. A run with one member has no numbers.

  virtual std::size_t members() const { return 1; }
  virtual std::size_t leader() const { return 0; }
  /// evaluate() of all members: a loss that is undefined is of one that is no longer trained.
  virtual std::vector<Graded> evaluate_all(Workbench& bench, const Batch& batch, const ForwardContext& pass) {
    return {evaluate(bench, batch, pass)};
  }
};

// A bench of one model has neither.
inline void Workbench::report(const Graded&, const Batch&, std::size_t) {
  throw PluginError("this bench trains a single model");
}
inline Table Workbench::run_file(const std::vector<std::string>&) const {
  throw PluginError("this bench has no run file");
}

}  // namespace trainyard
