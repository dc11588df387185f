#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard {

/// "[64, 10]", for messages.
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace trainyard
