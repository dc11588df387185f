// Computes the gradients of the parameters from a loss.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainyard::train {

/// Does loss.backward(root). If the graph is a chain - each node feeds one other, the last one parameters, as
/// with an executor that computes the network as one node - its nodes are called in turn, without autograd's
/// engine, which takes longer than a small network.
void backward(const at::Tensor& loss, const at::Tensor& root);

}  // namespace trainyard::train
