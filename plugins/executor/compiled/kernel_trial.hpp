// Times kernels at the shapes of a node: a network of that node alone, on memory of its own, so that nothing of the run changes.
#pragma once

#include <cstdint>
#include <vector>

#include <trainyard/graph/graph.hpp>

#include "kernel_times.hpp"

namespace compiled {

/// Returns the least of several timings of each direction by each of these ways that is possible, in turn, for `samples` samples; where
/// those take many milliseconds, by a part of them. The data direction is left out unless `has_data`.
KernelTimes tried(const trainyard::Graph& graph, const trainyard::Node& node, std::int64_t samples,
                  const std::vector<Way>& ways_tried, bool has_data, int threads);

}  // namespace compiled
