#include "core/engine/train/backward.hpp"

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <ATen/core/grad_mode.h>

#include <string>
#include <vector>

namespace trainyard::train {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

bool has_hooks(Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() || !node.tensor_pre_hooks().empty() ||
         !node.retains_grad_hooks().empty();
}

bool is_leaf(Node& node) {
  return dynamic_cast<torch::autograd::AccumulateGrad*>(&node) != nullptr;
}

void give(Node& node, at::Tensor gradient) {
  torch::autograd::variable_list given;
  given.push_back(std::move(gradient));
  node(std::move(given));
}

/// Returns the nodes of the chain from the loss on; none if the graph is no chain, or a node has hooks.
std::vector<Node*> chain_of(const at::Tensor& loss) {
  std::vector<Node*> chain;
  for (Node* node = loss.grad_fn().get(); node != nullptr;) {
    if (is_leaf(*node) || node->num_inputs() != 1 || has_hooks(*node)) return {};
    chain.push_back(node);
    Node* next = nullptr;
    bool leaves = false;
    for (const Edge& edge : node->next_edges()) {
      if (!edge.is_valid()) continue;
      const bool leaf = is_leaf(*edge.function);
      if (next != nullptr || (!leaf && leaves) || (leaf && has_hooks(*edge.function))) return {};
      leaves = leaf;
      if (!leaf) next = edge.function.get();
    }
    node = next;
  }
  return chain;
}

}  // namespace

void backward(const at::Tensor& loss, const at::Tensor& root) {
  const bool plain = loss.is_cpu() && loss.output_nr() == 0 && !torch::autograd::AnomalyMode::is_enabled();
  const std::vector<Node*> chain = plain ? chain_of(loss) : std::vector<Node*>();
  if (chain.empty()) return loss.backward(root);

  const at::AutoGradMode untracked(false);
  at::Tensor gradient = root;
  for (Node* const node : chain) {
    node->will_release_variables();
    torch::autograd::variable_list found = (*node)({gradient});
    node->release_variables();
    const torch::autograd::edge_list& edges = node->next_edges();
    torch::autograd::validate_outputs(edges, found, [&](const std::string& message) {
      return "backward through " + node->name() + ": " + message;
    });
    gradient.reset();
    for (std::size_t i = 0; i < edges.size(); ++i) {
      if (!edges[i].is_valid() || !found[i].defined()) continue;
      at::Tensor each = std::move(found[i]);  // taken over as it is, if nobody else has it
      if (is_leaf(*edges[i].function))
        give(*edges[i].function, std::move(each));
      else
        gradient = std::move(each);
    }
    if (!gradient.defined()) return;  // it was the last node, or no gradient goes further
  }
}

}  // namespace trainyard::train
