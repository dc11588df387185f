// A network as an ONNX file: nodes as they are in an evaluation, weights by name.
#pragma once

#include <string>
#include <vector>

#include <trainyard/graph/graph.hpp>
#include <trainyard/named_tensor.hpp>

struct OnnxOptions {
  std::string source;     ///< where the weights came from; said in the file
  bool external = false;  ///< weights in a file beside it, PATH.data, as those of 2 GB and more always are
};

/// Opset 23. `tensors` take the place of the graph's initializers of their names, on the CPU and contiguous. The
/// batch is a dimension named "batch". Both files stand at their places only when they are whole. Throws
/// ConfigError for a tensor of a type that ONNX lacks, by name; DataError where a file cannot be written.
void write_onnx(const std::string& path, const trainyard::Graph& graph,
                const std::vector<trainyard::NamedTensor>& tensors, const OnnxOptions& options);
