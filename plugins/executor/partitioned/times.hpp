// What the operators of a network take, in microseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <trainyard/graph/graph.hpp>

namespace partitioned {

/// By node of the network's graph.
struct Times {
  std::vector<double> forward, backward;
  double loss = 0.0;  ///< between them

  double total() const;
};

/// Returns what a pass takes on so many threads within operators, from the counts of operations and bytes for a batch of
/// `samples`. Nothing in it is measured, so that two runs of one file decide alike.
Times estimated(const trainyard::Graph& graph, std::int64_t samples, int threads);

/// Returns the bytes of a value for such a batch.
double bytes_of(const trainyard::GraphValue& value, std::int64_t samples);

}  // namespace partitioned
