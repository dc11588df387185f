#include "saved.hpp"

#include <set>

#include <torch/csrc/autograd/generated/Functions.h>

namespace packed_activations {
namespace {

namespace functions = torch::autograd::generated;
using torch::autograd::Node, torch::autograd::SavedVariable;

template <class Function>
void add(Node& node, SavedVariable Function::*field, bool by_sign, std::vector<Saved>& found) {
  if (auto* const function = dynamic_cast<Function*>(&node)) found.push_back({&(function->*field), by_sign});
}

void add_fields(Node& node, std::vector<Saved>& found) {
  add(node, &functions::AddmmBackward0::mat1_, false, found);
  add(node, &functions::MmBackward0::self_, false, found);
  add(node, &functions::BmmBackward0::self_, false, found);
  add(node, &functions::BmmBackward0::mat2_, false, found);
  add(node, &functions::ConvolutionBackward0::input_, false, found);
  add(node, &functions::ReluBackward0::result_, true, found);
  add(node, &functions::LeakyReluBackward0::self_, true, found);
  add(node, &functions::GeluBackward0::self_, false, found);
  add(node, &functions::SigmoidBackward0::result_, false, found);
  add(node, &functions::TanhBackward0::result_, false, found);
  add(node, &functions::HardswishBackward0::self_, false, found);
  add(node, &functions::NativeBatchNormBackward0::input_, false, found);
  add(node, &functions::NativeLayerNormBackward0::input_, false, found);
  add(node, &functions::NativeGroupNormBackward0::input_, false, found);
  add(node, &functions::MaxPool2DWithIndicesBackward0::self_, false, found);
  add(node, &functions::MaxPool3DWithIndicesBackward0::self_, false, found);
  add(node, &functions::AvgPool2DBackward0::self_, false, found);
  add(node, &functions::AvgPool3DBackward0::self_, false, found);
}

}  // namespace

std::vector<Saved> saved_by_node(std::span<const at::Tensor> inputs, std::span<const at::Tensor> outputs) {
  std::set<const Node*> seen;
  for (const at::Tensor& input : inputs)
    if (input.defined() && input.grad_fn() != nullptr) seen.insert(input.grad_fn().get());
  std::vector<Node*> next;
  for (const at::Tensor& output : outputs)
    if (output.defined() && output.grad_fn() != nullptr) next.push_back(output.grad_fn().get());
  std::vector<Saved> found;
  while (!next.empty()) {
    Node* const node = next.back();
    next.pop_back();
    if (!seen.insert(node).second) continue;
    add_fields(*node, found);
    for (const torch::autograd::Edge& edge : node->next_edges())
      if (edge.function != nullptr) next.push_back(edge.function.get());
  }
  return found;
}

}  // namespace packed_activations
