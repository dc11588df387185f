// The window of a convolution or a pooling over an image, as ONNX says it and oneDNN takes it.
#pragma once

#include <optional>

#include <trainyard/graph/graph.hpp>

#include "memory.hpp"

namespace compiled {

struct Window {
  Dims kernel, strides, dilations;  ///< dilations from 0, as oneDNN counts them
  Dims begin, end;                  ///< padding

  bool dilated() const { return dilations[0] > 0 || dilations[1] > 0; }
};

/// Nothing for one that is not of two dimensions or leaves its padding to be found out.
inline std::optional<Window> window_of(const trainyard::Node& node, Dims kernel) {
  if (kernel.size() != 2 || node.text("auto_pad", "NOTSET") != "NOTSET" || node.integer("ceil_mode", 0) != 0)
    return std::nullopt;
  Window window{.kernel = std::move(kernel),
                .strides = node.integers("strides", {1, 1}),
                .dilations = node.integers("dilations", {1, 1})};
  for (std::int64_t& dilation : window.dilations) --dilation;
  const Dims pads = node.integers("pads", {0, 0, 0, 0});
  window.begin = {pads[0], pads[1]};
  window.end = {pads[2], pads[3]};
  return window;
}

}  // namespace compiled
