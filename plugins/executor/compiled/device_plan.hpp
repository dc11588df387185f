// A compiled pass of a network on a device: forward and backward are recorded once, on memory that stays, and played
// again for each batch.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "device.hpp"
#include "fused_nodes.hpp"
#include "tracked_pass.hpp"

namespace compiled {

/// For passes without dropout: a recording has the numbers of one pass.
class DevicePlan final : public TrackedPass {
 public:
  /// For batches like this one, which goes through the network some times; its running statistics stay as they were.
  /// The network and the device outlive it. Throws what the nodes throw, and Device's functions.
  DevicePlan(trainyard::GraphNetwork& network, bool fuses, Device& device, const trainyard::Batch& batch,
             const trainyard::ForwardContext& context);

  at::Tensor forward(const trainyard::Batch& batch, const trainyard::ForwardContext& context) override;
  bool fits() const override;
  std::size_t steps() const { return nodes_.steps(); }

 private:
  std::vector<at::Tensor> backward(std::size_t stretch, const at::Tensor& gradient) override;
  void bind(const trainyard::Batch& batch);
  void warm_up();
  void go_forward();
  void go_back();
  std::vector<at::Tensor> parts(const at::Tensor& all) const;

  trainyard::GraphNetwork& network_;
  FusedNodes nodes_;
  trainyard::ForwardContext context_;
  std::vector<const void*> places_;  ///< of initializers
  std::vector<at::Tensor> values_;   ///< by value of the graph: what the nodes are given
  std::vector<at::Tensor> inputs_;   ///< where batches are copied to
  std::vector<at::Tensor> leaves_;   ///< the parameters as the recording knows them
  at::Tensor output_, given_;        ///< its gradient
  at::Tensor gradients_;             ///< all of them, one behind the other
  std::vector<at::Tensor> into_;     ///< parts of it
  std::unique_ptr<Recording> forward_, backward_;
};

}  // namespace compiled
