#include "progress.hpp"

#include <algorithm>

namespace compiled {

Progress::Progress(const trainyard::Graph& graph, const std::vector<std::vector<std::int64_t>>& inputs,
                   const Copies& copies)
    : graph_(graph), taken_(graph.nodes.size()) {
  std::int64_t batch = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<std::int64_t>& expected = graph.values[static_cast<std::size_t>(graph.inputs[i])].shape;
    for (std::size_t d = 0; d < expected.size(); ++d)
      if (expected[d] < 0) batch = inputs[i][d] / -expected[d];
  }
  batches_.assign(graph.values.size(), batch);
  if (copies.empty()) return;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    std::int64_t samples = batch;
    for (const trainyard::ValueId id : graph.nodes[n].inputs)
      if (id != trainyard::no_value) samples = std::max(samples, batches_[static_cast<std::size_t>(id)]);
    if (const auto own = copies.find(n); own != copies.end()) samples *= own->second;
    for (const trainyard::ValueId id : graph.nodes[n].outputs)
      if (id != trainyard::no_value) batches_[static_cast<std::size_t>(id)] = samples;
  }
}

std::vector<std::int64_t> Progress::dims_of(trainyard::ValueId id) const {
  std::vector<std::int64_t> dims = graph_.values[static_cast<std::size_t>(id)].shape;
  for (std::int64_t& dim : dims)
    if (dim < 0) dim = -dim * batches_[static_cast<std::size_t>(id)];
  return dims;
}

}  // namespace compiled
