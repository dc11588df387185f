// A compiled pass of a network for batches of one shape: the output, and the gradients of the parameters, which
// autograd sees as one node.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <torch/csrc/autograd/edge.h>

#include <trainyard/batch.hpp>
#include <trainyard/graph/network.hpp>

#include "compiler.hpp"

namespace compiled {

class Plan : public std::enable_shared_from_this<Plan> {
 public:
  /// The network outlives it. Throws dnnl::error where oneDNN refuses what the rules made.
  Plan(trainyard::GraphNetwork& network, const PlanKey& key, const Choices& choices);

  /// A pass on the CPU, in training or in evaluation as the plan is for. In training one at a time: `is_busy` until its
  /// output and all that hangs on it are gone.
  at::Tensor forward(const trainyard::Batch& batch, const trainyard::ForwardContext& context);
  bool is_busy() const { return !pass_.expired(); }

  /// Of what is forwarded: nodes that LibTorch computes, the number of steps, and the bytes of the arena.
  const std::vector<std::string>& by_libtorch() const { return compiler_.by_libtorch_; }
  std::size_t steps() const { return compiler_.instructions_.size(); }
  std::size_t arena_bytes() const { return arena_bytes_; }

 private:
  class Node;

  std::vector<at::Tensor> backward(const at::Tensor& gradient);
  void bind_parameters();

  trainyard::GraphNetwork& network_;
  Compiler compiler_;
  ValueNumber output_ = 0;
  bool hands_out_ = false;  ///< the output is not looked at on the way back: it lies where it is handed out
  std::vector<ValueNumber> inputs_;
  std::vector<std::pair<std::size_t, ValueNumber>> initializers_;  ///< value of the graph, of the plan
  std::vector<std::pair<at::Tensor, ValueNumber>> parameters_;     ///< that want a gradient
  std::vector<at::Tensor> gradients_;
  std::vector<torch::autograd::Edge> edges_;
  std::vector<at::Tensor> kept_inputs_;
  at::Tensor result_;
  std::size_t arena_bytes_ = 0;
  std::optional<Arena> arena_;
  Pass current_;
  std::weak_ptr<int> pass_;
};

}  // namespace compiled
