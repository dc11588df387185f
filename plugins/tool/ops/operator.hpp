// A point of the sweeps: an operator, or a block of several, with its shape and how it is run.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <trainyard/graph/graph.hpp>

namespace ops {

struct Operator {
  std::string op = "conv";  ///< a name of operator_names()
  std::int64_t batch = 1;
  std::int64_t size = 28;          ///< height and width of the input; 1 where it is a row
  std::int64_t in = 64, out = 64;  ///< channels or features; `out` has a meaning for conv, linear and blocks
  std::int64_t kernel = 3, stride = 1, groups = 1;
  std::string type = "fp32";      ///< number format: "fp32", "bf16", "int8"
  std::string phase = "forward";  ///< "forward"; "training": backward too; "first": no gradient of the input
  std::string library = "libtorch";  ///< "onednn": its primitive, called directly
  std::int64_t threads = 1;

  bool depthwise() const { return op == "conv" && groups > 1 && groups == in; }
  auto all() const {
    return std::tie(op, batch, size, in, out, kernel, stride, groups, type, phase, library, threads);
  }
  bool operator==(const Operator& other) const { return all() == other.all(); }
  bool operator<(const Operator& other) const { return all() < other.all(); }
};

/// Operators and activations that a network has as nodes, and blocks of several.
const std::vector<std::string>& activations();
const std::vector<std::string>& blocks();

/// Returns the name of an operator of ONNX that has no more than a size: "relu" for "Relu"; empty for others.
std::string name_of(const std::string& onnx);

/// Returns it as a network: fp32, or what `type` says. Throws ConfigError for a name or a shape that there is not.
trainyard::Graph graph_of(const Operator& point);

inline const std::vector<std::int64_t>& shape_of(const trainyard::Graph& graph, trainyard::ValueId id) {
  return graph.values[static_cast<std::size_t>(id)].shape;
}

/// What one forward pass computes and moves, of the whole batch.
struct Work {
  double multiply_adds = 0.0;
  double bytes = 0.0;  ///< of inputs, weights and outputs of its nodes
};
Work work_of(const trainyard::Graph& graph, const Operator& point);

}  // namespace ops
