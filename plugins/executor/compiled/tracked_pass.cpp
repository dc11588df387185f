#include "tracked_pass.hpp"

#include <ATen/core/grad_mode.h>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <utility>

#include <trainyard/error.hpp>

namespace compiled {

/// What autograd has of a pass.
class TrackedPass::Node final : public torch::autograd::Node {
 public:
  Node(std::shared_ptr<TrackedPass> whole, std::shared_ptr<int> pass)
      : whole_(std::move(whole)), pass_(std::move(pass)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (at::GradMode::is_enabled())
      throw trainyard::ConfigError(
          "gradients of gradients were asked for, which a compiled step does not have: set executor.type = "
          "\"eager\"");
    if (!pass_)
      throw trainyard::ConfigError(
          "a compiled step was gone through backward twice: set executor.type = \"eager\"");
    torch::autograd::variable_list found(whole_->parameters_.size());
    if (gradients[0].defined()) found = whole_->backward(gradients[0]);
    pass_.reset();
    return found;
  }
  void release_variables() override { pass_.reset(); }
  std::string name() const override { return "CompiledStep"; }

 private:
  std::shared_ptr<TrackedPass> whole_;
  std::shared_ptr<int> pass_;
};

at::Tensor TrackedPass::track(at::Tensor output) {
  if (parameters_.empty()) return output;
  auto token = std::make_shared<int>(0);
  pass_ = token;
  const std::shared_ptr<Node> node(new Node(shared_from_this(), std::move(token)),
                                   torch::autograd::deleteNode);
  if (edges_.empty())
    for (const at::Tensor& parameter : parameters_)
      edges_.push_back(torch::autograd::impl::gradient_edge(parameter));
  node->set_next_edges(torch::autograd::edge_list(edges_));
  torch::autograd::set_history(output, node);
  return output;
}

}  // namespace compiled
