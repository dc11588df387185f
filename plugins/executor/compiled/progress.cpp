#include "progress.hpp"

namespace compiled {

Progress::Progress(const trainyard::Graph& graph, const std::vector<std::vector<std::int64_t>>& inputs)
    : graph_(graph), taken_(graph.nodes.size()) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<std::int64_t>& expected = graph.values[static_cast<std::size_t>(graph.inputs[i])].shape;
    for (std::size_t d = 0; d < expected.size(); ++d)
      if (expected[d] < 0) batch_ = inputs[i][d] / -expected[d];
  }
}

std::vector<std::int64_t> Progress::dims_of(trainyard::ValueId id) const {
  std::vector<std::int64_t> dims = graph_.values[static_cast<std::size_t>(id)].shape;
  for (std::int64_t& dim : dims)
    if (dim < 0) dim = -dim * batch_;
  return dims;
}

}  // namespace compiled
