// A compiled pass of a network on the CPU, for batches of one shape.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/graph/network.hpp>

#include "compiler.hpp"
#include "tracked_pass.hpp"

namespace compiled {

class Plan final : public TrackedPass {
 public:
  /// The network outlives it. `run_node`, else the network itself, computes nodes without a rule. Throws dnnl::error where oneDNN refuses what
  /// the rules made.
  Plan(trainyard::GraphNetwork& network, const PlanKey& key, const Choices& choices, RunNode run_node = {});

  /// Throws OtherRows where a dropout makes other copies than the plan is for: nothing has happened then.
  at::Tensor forward(const trainyard::Batch& batch, const trainyard::ForwardContext& context) override {
    return track(compute(batch, context));
  }
  /// The two halves of a pass, of which autograd knows nothing. Gradients are in the order of `parameters`.
  at::Tensor compute(const trainyard::Batch& batch, const trainyard::ForwardContext& context);
  std::vector<at::Tensor> backward(const at::Tensor& gradient);

  /// Of what is forwarded: nodes that LibTorch computes, the number of steps, and the bytes of the arena.
  const std::vector<std::string>& by_libtorch() const { return compiler_.by_libtorch_; }
  std::size_t steps() const { return compiler_.instructions_.size(); }
  std::size_t arena_bytes() const { return arena_bytes_; }
  const std::vector<Kernel>& kernels() const { return compiler_.kernels_; }
  /// The instruction that makes the graph's output, for who times it behind a pass forward and backward.
  Instruction& last();

 private:
  std::vector<at::Tensor> backward(std::size_t stretch, const at::Tensor& gradient) override;
  void cut_way_back();
  void bind_parameters();
  void run_forward();
  void place_gradients();
  void begin_way_back(const at::Tensor& gradient);

  trainyard::GraphNetwork& network_;
  Compiler compiler_;
  ValueNumber output_ = 0;
  bool hands_out_ = false;  ///< the output is not looked at on the way back: it lies where it is handed out
  std::vector<ValueNumber> inputs_;
  std::vector<std::pair<std::size_t, ValueNumber>> initializers_;  ///< value of the graph, of the plan
  std::vector<ValueNumber> into_;                                  ///< whose gradients are the parameters'
  std::vector<std::size_t>
      statistics_;  ///< values of the graph that a pass which has to be taken back has written
  std::vector<std::vector<float>> kept_;  ///< what they were ahead of it
  std::vector<at::Tensor> gradients_;
  /// Parameters that are joined: their gradients are parts of one tensor.
  struct Joined {
    ValueNumber number;
    std::vector<std::pair<std::size_t, std::int64_t>> parts;  ///< place in gradients_, first element
    at::Tensor gradient;
  };
  std::vector<Joined> joined_;
  std::vector<bool> is_cut_;       ///< by gradient
  std::vector<std::size_t> ends_;  ///< of the stretches, on the way back
  std::vector<at::Tensor> kept_inputs_;
  at::Tensor result_;
  std::size_t arena_bytes_ = 0;
  std::optional<Arena> arena_;
  Pass current_;
};

}  // namespace compiled
