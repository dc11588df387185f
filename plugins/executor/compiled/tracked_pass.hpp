// A compiled pass as autograd sees it: one node, whose inputs are the parameters; a chain of nodes where somebody waits for
// gradients as they are made, such as ranks that sum them meanwhile.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <torch/csrc/autograd/edge.h>

#include <trainyard/batch.hpp>
#include <trainyard/forward_context.hpp>

namespace compiled {

/// One pass of training at a time: `is_busy` until its output and all that hangs on it are gone, or it has been gone back.
class TrackedPass : public std::enable_shared_from_this<TrackedPass> {
 public:
  virtual ~TrackedPass() = default;

  /// A pass in training, or in evaluation, as it was made for. What it gives out, and its gradients, nobody writes over
  /// afterwards.
  virtual at::Tensor forward(const trainyard::Batch& batch, const trainyard::ForwardContext& context) = 0;
  bool is_busy() const { return !pass_.expired(); }
  /// Whether the tensors of the network lie where it needs them; else another is to be made.
  virtual bool fits() const { return true; }
  /// Those that get a gradient.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 protected:
  /// The way back is cut into stretches, behind each of which some gradients are whole: nothing later looks at them.
  using Stretch = std::vector<std::size_t>;  ///< places in `parameters_`

  /// Goes one stretch further; `gradient` is that of the output. Gives the gradients that are whole then, in the order of
  /// the stretch. Autograd does not look on.
  virtual std::vector<at::Tensor> backward(std::size_t stretch, const at::Tensor& gradient) = 0;
  /// Makes an output, of which nobody else has the tensor, that of a pass.
  at::Tensor track(at::Tensor output);

  std::vector<at::Tensor> parameters_;
  std::vector<Stretch> stretches_;  ///< each parameter is in one of them

 private:
  class Node;

  bool is_waited_for() const;

  std::vector<torch::autograd::Edge> edges_;
  std::weak_ptr<int> pass_;
};

}  // namespace compiled
