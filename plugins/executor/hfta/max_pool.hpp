// The largest numbers of windows, and a ReLU ahead of them, as one node of autograd: plane by plane, whatever the layout.
#pragma once

#include "fused.hpp"

namespace hfta {

/// Whether the windows of a MaxPool have neither gaps nor padding, so that the kernel fits (kernels/cpu/max_pool.hpp).
bool has_close_windows(const Graph& graph, const Node& node);

/// Whether it takes this input: floats of the CPU.
bool is_for_kernel(const FusedNode& node, const Fused& x);

/// MaxPool of [..., rows, columns], or of the ReLU of it where the node has one, by the kernel.
at::Tensor max_pool(const FusedNode& node, const at::Tensor& x);

}  // namespace hfta
