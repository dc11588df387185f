// A model as data: nodes with ONNX operator names and attributes (opset 23), tensors as initializers, shapes
// inferred. A model plugin builds it (builder.hpp), LibTorch executes it (network.hpp), and plugins that
// transform models read and edit it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <trainyard/contract.hpp>
#include <trainyard/helpers/shape_text.hpp>

TRAINYARD_CONTRACT("graph/graph.hpp");

namespace trainyard {

/// Index into Graph::values; `no_value` stands for an optional input that is not given.
using ValueId = std::int32_t;
inline constexpr ValueId no_value = -1;

/// Stands for the batch dimension, unknown until a batch comes. A dimension -k is k times the batch: [batch,
/// 128, 64] flattened to rows is [-128, 64], so that the cost of a sample stays known.
inline constexpr std::int64_t batch_dim = -1;

using Attribute = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<std::string>, at::Tensor>;

struct GraphValue {
  std::string name;
  std::vector<std::int64_t> shape;  ///< multiples of batch_dim where unknown; filled by infer_shapes
  at::ScalarType dtype = at::kFloat;
  at::Tensor initializer;  ///< defined: a constant, parameter or buffer
  bool trainable = false;  ///< an initializer is a parameter; else a buffer (floating point) or constant
};

struct Node {
  std::string op;    ///< ONNX operator name: "Gemm", "Conv", ...
  std::string name;  ///< unique in the graph: "fc1", "layer1.0.conv1"
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::map<std::string, Attribute, std::less<>> attributes;

  /// Return the attribute, or `fallback` where it is not set. Throw PluginError where it has another type.
  std::int64_t integer(std::string_view attribute, std::int64_t fallback) const;
  double number(std::string_view attribute, double fallback) const;
  std::string text(std::string_view attribute, std::string fallback) const;
  std::vector<std::int64_t> integers(std::string_view attribute, std::vector<std::int64_t> fallback) const;
};

struct Graph {
  std::vector<GraphValue> values;
  std::vector<Node> nodes;  ///< in an order that can be executed
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;

  ValueId add_value(GraphValue value);
  /// Returns the value of that name, or no_value.
  ValueId find_value(std::string_view name) const;

  /// Checks structure (names unique, inputs defined before use, each value produced once) and the rules of
  /// each operator, and fills shape and dtype of every value. Throws ConfigError that names the node, what it
  /// got and what it needs.
  void infer_shapes();
};

/// The cost of one node for one sample. A parameter that several nodes share counts at the first, so that the
/// sum over nodes is that of the model.
struct NodeCost {
  std::int64_t parameters = 0;
  std::int64_t multiply_adds = 0;
};
/// Counts the multiply-adds of Gemm, MatMul, Conv, Attention and LSTM; other operators have 0. Needs shapes.
NodeCost cost(const Graph& graph, const Node& node);

/// Returns the operators that infer_shapes and GraphNetwork know, sorted.
std::vector<std::string> known_operators();

}  // namespace trainyard
