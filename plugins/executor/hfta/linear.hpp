// The linear layers of all members of an array, each with its bias and a ReLU behind it, as one node of autograd.
#pragma once

#include "fused.hpp"

namespace hfta {

/// y = x W^T + b [B, N, out], and its ReLU where the node has one. `x` [N, in] of each member or shared, `weight`
/// [B, out, in] and `bias` [B, out], or none, parameters: backward puts their gradients where they are gathered. Floats
/// of the CPU by a kernel (kernels/cpu/linear.hpp), for each member the same bits whatever the others are; else by
/// products of ATen.
at::Tensor linear(const FusedNode& node, const Fused& x, const Fused& weight, const Fused& bias);

}  // namespace hfta
