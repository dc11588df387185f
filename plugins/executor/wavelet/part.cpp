#include "part.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <string>

namespace wavelet {
namespace {

/// With handles of its own, so that autograd does not take an update of the network for a change of what a pass has kept.
Graph with_handles(Graph graph, bool copies) {
  for (GraphValue& value : graph.values)
    if (value.initializer.defined())
      value.initializer =
          copies && value.trainable ? value.initializer.detach().clone() : value.initializer.variable_data();
  return graph;
}

}  // namespace

Part::Part(const Graph& graph, bool copies) : network_(with_handles(graph, copies)) {
  for (const NamedTensor& each : network_.parameters()) {
    leaves_.push_back(each.tensor);
    sums_.push_back(at::empty(each.tensor.sizes(), each.tensor.options().requires_grad(false)));
  }
  has_.resize(leaves_.size());
}

void Part::read(const Network& network) {
  std::map<std::string, at::Tensor> weights;
  for (const NamedTensor& each : network.parameters()) weights[each.name] = each.tensor.detach();
  for (const NamedTensor& each : network_.parameters()) each.tensor.detach().copy_(weights.at(each.name));
}

Tensors Part::forward(const Tensors& inputs, const ForwardContext& context, bool is_first) {
  const at::AutoGradMode tracked(true);
  if (!is_first)
    for (const at::Tensor& each : inputs)
      if (each.is_floating_point()) each.set_requires_grad(true);
  return network_.forward_all(inputs, context);
}

Tensors Part::backward(const Tensors& inputs, const Tensors& outputs, const Tensors& given) {
  const at::NoGradGuard untracked;
  Tensors from, gradients, wanted = leaves_;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (given[i].defined() && outputs[i].requires_grad()) {
      from.push_back(outputs[i]);
      gradients.push_back(given[i]);
    }
  for (const at::Tensor& each : inputs)
    if (each.requires_grad()) wanted.push_back(each);
  Tensors found(wanted.size());
  if (!from.empty() && !wanted.empty())
    found = torch::autograd::grad(from, wanted, gradients, /*retain_graph=*/false, /*create_graph=*/false,
                                  /*allow_unused=*/true);
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (!found[i].defined()) continue;
    if (has_[i])
      sums_[i].add_(found[i]);
    else
      sums_[i].copy_(found[i]);  // which may be the gradient of another one, too
    has_[i] = true;
  }
  Tensors back;
  std::size_t next = leaves_.size();
  for (const at::Tensor& each : inputs) back.push_back(each.requires_grad() ? found[next++] : at::Tensor());
  return back;
}

Tensors Part::take_gradients() {
  Tensors gradients(leaves_.size());
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    if (has_[i]) gradients[i] = sums_[i];
  has_.assign(leaves_.size(), false);
  return gradients;
}

}  // namespace wavelet
