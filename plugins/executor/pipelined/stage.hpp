// One stage of the pipeline: layers with their weights, which it updates by itself.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/forward_context.hpp>
#include <trainyard/graph/network.hpp>

#include "rules.hpp"

namespace pipelined {

using namespace trainyard;

using Tensors = std::vector<at::Tensor>;

/// Samples that go through the pipeline together, and what holds for their update in every stage.
struct Unit {
  Batch batch;
  ForwardContext pass;
  double factor = 1.0;             ///< of the schedule, on the learning rate
  std::optional<double> momentum;  ///< of the schedule
};
using UnitHandle = std::shared_ptr<const Unit>;

/// What a stage hands to a neighbour: activations to the next, gradients of them to the one before, where a
/// tensor may be undefined.
struct Message {
  UnitHandle unit;
  Tensors tensors;
};

/// A parameter of the run's network, and what an update of it reads and writes.
struct Weight {
  at::Tensor weight;
  at::Tensor velocity;
  double lr = 0.0;  ///< before factors of the schedule
  double decay = 0.0;
};
using Weights = std::map<std::string, Weight, std::less<>>;  ///< by name

struct Method {
  Mitigation mitigation = Mitigation::none;
  double horizon_scale = 1.0;
  double momentum = 0.0;     ///< of the run's optimizer
  double update_size = 1.0;  ///< samples
  std::optional<double>
      from_size{};             ///< the batch size that its rates are for; nothing: they are taken as they are
  bool keeps_weights = false;  ///< of forward passes in flight, so that these can be done again after a load

  /// Of an update, from the rates of the run's file and schedule.
  Rates rates(double lr, const std::optional<double>& scheduled) const {
    const Rates plain{lr, scheduled.value_or(momentum)};
    return from_size ? scaled(plain, *from_size, update_size) : plain;
  }
};

/// One thread at a time.
class Stage {
 public:
  /// A unit that is in flight here: its backward pass has to come.
  struct Passed {
    UnitHandle unit;
    Tensors inputs, outputs;
    Tensors weights;           ///< of the forward pass; empty where nobody asks for them
    std::int64_t version = 0;  ///< updates before the forward pass
  };
  /// Number `number` of `stages`, on the weights of its parameters. `clip` is given the gradients of an update.
  Stage(const Graph& part, const Weights& weights, std::int64_t number, std::int64_t stages,
        const Method& method, std::function<void(Tensors&)> clip);

  Message forward(Message in);
  /// The activations of the newest unit here; a loss that is made of them may take their place.
  Tensors& newest() { return passed_.back().outputs; }
  /// Of the oldest unit; then the update. Gives the gradients of its inputs.
  Message backward(const Message& gradients);

  std::int64_t delay() const { return delay_; }
  std::int64_t updates() const { return updates_; }
  const std::deque<Passed>& passed() const { return passed_; }
  std::vector<NamedTensor> parameters() const { return network_.parameters(); }
  /// Units in flight here at once, at most.
  std::size_t most() const { return most_; }
  std::size_t inputs() const { return network_.graph()->inputs.size(); }
  std::size_t outputs() const { return network_.graph()->outputs.size(); }

  /// The weights ahead of the last update, where the method reads them; else empty.
  Tensors& before() { return before_; }
  const Tensors& before() const { return before_; }
  /// Has a unit in flight again, by the weights that its forward pass had.
  void repeat(UnitHandle unit, Tensors inputs, Tensors weights);

 private:
  double horizon() const { return static_cast<double>(delay_) * method_.horizon_scale; }
  void set_for_forward(const Unit& unit);
  void set_for_backward(const Passed& passed);
  Tensors pass(const Unit& unit, const Tensors& inputs);
  void update(const Unit& unit, Tensors& gradients);

  Method method_;
  std::int64_t delay_;
  bool is_first_;
  std::function<void(Tensors&)> clip_;
  bool apart_;  ///< the network has weights of its own, set ahead of each pass, not those of the run
  GraphNetwork network_;  ///< handles of its own in any case: autograd does not see updates of the run's
  Tensors leaves_;        ///< its parameters
  Tensors data_;          ///< the same storage, to be written past autograd
  std::vector<Weight> weights_;  ///< of the run, in the same order
  Tensors before_;
  std::deque<Passed> passed_;
  std::int64_t updates_ = 0;
  std::size_t most_ = 0;
};

}  // namespace pipelined
