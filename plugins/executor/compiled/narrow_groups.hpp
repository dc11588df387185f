// Convolutions in groups of few channels, for which plans have a kernel of their own.
#pragma once

#include <cstdint>
#include <optional>

#include <trainyard/graph/graph.hpp>

#include "kernels/cpu/grouped_conv.hpp"

namespace compiled {

/// The sizes of a convolution for that kernel, as if there were `times` as many groups of channels; nothing where it does not fit.
std::optional<trainyard::kernels::GroupedConvShape> narrow_groups(const trainyard::Graph& graph,
                                                                  const trainyard::Node& node,
                                                                  std::int64_t times = 1);

}  // namespace compiled
