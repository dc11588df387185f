// The nodes of a network one after another by LibTorch, under autograd, but for chains of them, which are one kernel
// each way.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/forward_context.hpp>
#include <trainyard/graph/network.hpp>

#include "chain_collector.hpp"
#include "device.hpp"
#include "progress.hpp"

namespace compiled {

/// A chain with its kernels.
struct FusedChain {
  std::string name;  ///< NAME_forward, NAME_backward
  Collected nodes;
  std::shared_ptr<const Kernels> kernels;
};

/// The network and the device outlive it.
class FusedNodes final : public Progress {
 public:
  /// For inputs of these shapes. `fuses`: else there are no chains. Throws what Device::kernels throws.
  FusedNodes(trainyard::GraphNetwork& network, const std::vector<std::vector<std::int64_t>>& inputs,
             bool fuses, Device& device);

  /// The output. `values` by value of the graph: initializers and inputs are there.
  at::Tensor run(std::vector<at::Tensor> values, const trainyard::ForwardContext& context) const;
  std::size_t steps() const { return steps_.size(); }

  bool has_floats(trainyard::ValueId id) const override;
  bool wants_gradient_of(trainyard::ValueId id) const override {
    return wants_[static_cast<std::size_t>(id)];
  }

 private:
  struct Step {
    std::size_t node;
    std::shared_ptr<FusedChain> chain;        ///< in place of the node
    std::vector<trainyard::ValueId> release;  ///< values that nobody reads afterwards
  };

  std::shared_ptr<FusedChain> collect(std::size_t node);
  void make(std::size_t node, bool wants_gradient);
  void plan_releases();
  std::vector<trainyard::ValueId> read_by(const Step& step) const;

  trainyard::GraphNetwork& network_;
  std::vector<bool> made_, wants_;  ///< by value
  std::vector<Step> steps_;
};

}  // namespace compiled
