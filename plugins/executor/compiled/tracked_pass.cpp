#include "tracked_pass.hpp"

#include <ATen/core/grad_mode.h>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <utility>

#include <trainyard/error.hpp>

namespace compiled {

/// What autograd has of a pass, or of some stretches of its way back: the gradient of the output goes from node to node, as
/// a parameter's goes ahead of it (accumulating is what autograd does first).
class TrackedPass::Node final : public torch::autograd::Node {
 public:
  Node(std::shared_ptr<TrackedPass> whole, std::size_t first, std::size_t end, std::shared_ptr<int> pass)
      : whole_(std::move(whole)), first_(first), end_(end), pass_(std::move(pass)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (at::GradMode::is_enabled())
      throw trainyard::ConfigError(
          "gradients of gradients were asked for, which a compiled step does not have: set executor.type = "
          "\"eager\"");
    if (!pass_)
      throw trainyard::ConfigError(
          "a compiled step was gone through backward twice: set executor.type = \"eager\"");
    torch::autograd::variable_list found;
    found.reserve(next_edges().size());
    if (gradients[0].defined())
      for (std::size_t stretch = first_; stretch < end_; ++stretch)
        for (at::Tensor& each : whole_->backward(stretch, gradients[0])) found.push_back(std::move(each));
    found.resize(next_edges().size());
    if (end_ < whole_->stretches_.size()) found.back() = gradients[0];
    pass_.reset();
    return found;
  }
  void release_variables() override { pass_.reset(); }
  std::string name() const override { return "CompiledStep"; }

 private:
  std::shared_ptr<TrackedPass> whole_;
  std::size_t first_, end_;    ///< stretches
  std::shared_ptr<int> pass_;  ///< all nodes of a pass have it
};

/// Whether somebody is told of a parameter's gradient as soon as it is there.
bool TrackedPass::is_waited_for() const {
  return std::any_of(parameters_.begin(), parameters_.end(), [](const at::Tensor& parameter) {
    return torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr;
  });
}

at::Tensor TrackedPass::track(at::Tensor output) {
  if (parameters_.empty()) return output;
  const auto token = std::make_shared<int>(0);
  pass_ = token;
  if (edges_.empty())
    for (const at::Tensor& parameter : parameters_)
      edges_.push_back(torch::autograd::impl::gradient_edge(parameter));
  const std::size_t length = is_waited_for() ? 1 : stretches_.size();
  std::shared_ptr<Node> next;
  for (std::size_t end = stretches_.size(); end > 0; end -= length) {
    const std::shared_ptr<Node> node(new Node(shared_from_this(), end - length, end, token),
                                     torch::autograd::deleteNode);
    torch::autograd::edge_list edges;
    for (std::size_t stretch = end - length; stretch < end; ++stretch)
      for (const std::size_t parameter : stretches_[stretch]) edges.push_back(edges_[parameter]);
    if (next) edges.emplace_back(next, next->add_input_metadata(output));
    node->set_next_edges(std::move(edges));
    next = node;
  }
  torch::autograd::set_history(output, next);
  return output;
}

}  // namespace compiled
