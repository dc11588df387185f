// From a loss back to the gradients of the parameters.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainyard::train {

/// loss.backward(root). Where the graph is a chain - each node gives to one other, the last to parameters, as behind
/// an executor that computes the network as one node - its nodes are called one after another, without autograd's
/// engine, which takes longer than a small network.
void backward(const at::Tensor& loss, const at::Tensor& root);

}  // namespace trainyard::train
