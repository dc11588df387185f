// What autograd keeps of a node's activations until backward.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::autograd {
class SavedVariable;
}

namespace packed_activations {

struct Saved {
  torch::autograd::SavedVariable* variable;
  bool by_sign;  ///< its backward asks whether values are above 0
};

/// Returns the activations that the functions between the outputs of a node and its inputs keep for their backward, of
/// those functions whose fields are known here: products, convolutions, activation functions, normalisations, pooling.
/// Weights and statistics are not among them. What is returned lives as long as the outputs' graph.
std::vector<Saved> saved_by_node(std::span<const at::Tensor> inputs, std::span<const at::Tensor> outputs);

}  // namespace packed_activations
