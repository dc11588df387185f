#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard {

/// Returns "[64, 10]", for messages; of a graph's shapes (graph/graph.hpp) "[batch, 3, 28, 28]", and
/// "[batch*128, 64]" for a multiple of the batch.
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace trainyard
