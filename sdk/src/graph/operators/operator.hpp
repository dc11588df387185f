// The table of operators: what a graph may hold, how shapes follow, how it runs, what it costs. Adding an
// operator is one entry in one of the families below.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/dropout.hpp>
#include <trainyard/graph/graph.hpp>
#include <trainyard/network.hpp>

namespace trainyard {

using Shape = std::vector<std::int64_t>;

/// The plugins that serve the places where dropout acts, and their numbers.
struct DropoutService {
  const DropoutPlan* plan = nullptr;  ///< null: nobody
  MasksWeights* masks = nullptr;      ///< interfaces that the plugin implements, or null
  EvaluatesLinears* evaluates = nullptr;
  FusesLinears* fuses = nullptr;
  CarriesStates* carries = nullptr;
  std::vector<RandomStream> sites, weights, linears, cells;  ///< a stream for each place
  double p = 0.0;                                            ///< probability in the pass

  /// Returns the call for a place. Samples, evaluations and micro-batches draw different numbers.
  DropoutCall call(const RandomStream& stream, const ForwardContext& pass) const {
    const std::uint32_t lanes = pass.sampling ? 1u << 31 : pass.training ? 0 : 1u << 30;
    return {p, stream.at(pass.step, pass.micro | lanes), pass};
  }
};

/// One pass: the tensor of each value, and how the pass runs.
struct Frame {
  std::vector<at::Tensor> values;
  ForwardContext context;
  DropoutService dropout;

  at::Tensor& operator[](ValueId id) { return values[static_cast<std::size_t>(id)]; }
  /// Returns the tensor of an optional input.
  std::optional<at::Tensor> optional(ValueId id) const {
    return id == no_value ? std::nullopt : std::optional(values[static_cast<std::size_t>(id)]);
  }

  /// Return whether dropout acts at a site in this pass, and the activations there after dropout.
  bool drops_at(std::size_t site) const {
    return dropout.p > 0.0 && context.drops() && dropout.plan->places().sites[site].active;
  }
  at::Tensor dropped(const at::Tensor& x, std::size_t site) const {
    return dropout.plan->dropout().apply(x, site, dropout.call(dropout.sites[site], context));
  }
};

/// A compiled node: its attributes resolved, its values known by index.
using Call = std::function<void(Frame&)>;

/// Type of one output.
struct TensorType {
  Shape shape;
  at::ScalarType dtype = at::kFloat;
};

/// A node in its graph, as the rules of the operators read it.
class NodeView {
 public:
  NodeView(const Graph& graph, const Node& node) : graph_(&graph), node_(&node) {}

  const Graph& graph() const { return *graph_; }
  const Node& node() const { return *node_; }

  bool has(std::size_t index) const { return input(index) != no_value; }
  std::size_t inputs() const { return node_->inputs.size(); }
  /// Returns input `index`, or no_value.
  ValueId input(std::size_t index) const {
    return index < node_->inputs.size() ? node_->inputs[index] : no_value;
  }
  ValueId output(std::size_t index = 0) const { return node_->outputs[index]; }

  const GraphValue& value(std::size_t index) const {
    return graph_->values[static_cast<std::size_t>(node_->inputs[index])];
  }
  const Shape& shape(std::size_t index) const { return value(index).shape; }
  std::int64_t rank(std::size_t index) const { return static_cast<std::int64_t>(shape(index).size()); }
  at::ScalarType dtype(std::size_t index) const { return value(index).dtype; }
  const Shape& output_shape(std::size_t index = 0) const {
    return graph_->values[static_cast<std::size_t>(output(index))].shape;
  }

  /// Returns the elements of input `index`, which must be an initializer of integers (or of numbers).
  std::vector<std::int64_t> constant_integers(std::size_t index) const;
  double constant_number(std::size_t index) const;

  /// Returns `axis` counted from the front, checked against `rank`.
  std::int64_t axis(std::int64_t axis, std::int64_t rank) const;
  /// Returns attribute `axis` of input 0.
  std::int64_t axis_attribute(std::int64_t fallback) const {
    return axis(node_->integer("axis", fallback), rank(0));
  }

  /// Throws ConfigError: node `name` (Op): message.
  [[noreturn]] void fail(const std::string& message) const;
  void require(bool condition, const std::string& message) const {
    if (!condition) fail(message);
  }
  void require_rank(std::size_t index, std::int64_t expected) const;
  void require_floating(std::size_t index) const;

 private:
  const Graph* graph_;
  const Node* node_;
};

struct Operator {
  const char* name;
  std::size_t least_inputs, most_inputs;
  std::initializer_list<const char*> attributes;  ///< names that it reads; others are refused
  std::vector<TensorType> (*infer)(const NodeView&);
  Call (*compile)(const NodeView&);
  /// cost per sample; null: none
  std::int64_t (*multiply_adds)(const NodeView&) = nullptr;
};
inline constexpr std::size_t any_number = 1000;

// Each family is in the file of its name.
std::span<const Operator> dense_operators();
std::span<const Operator> convolution_operators();
std::span<const Operator> normalization_operators();
std::span<const Operator> elementwise_operators();
std::span<const Operator> layout_operators();
std::span<const Operator> sequence_operators();

/// Returns the entry of that name, or null.
const Operator* find_operator(std::string_view name);

/// Checks a node against its entry and returns the types of its outputs. Throws ConfigError.
std::vector<TensorType> infer(const NodeView& node);

// Arithmetic of dimensions: one below zero is that many times the batch (graph.hpp).

/// Returns a dimension for one sample.
inline std::int64_t per_sample(std::int64_t dim) {
  return dim < 0 ? -dim : dim;
}
/// Returns the product of dims [first, last); nothing where more than one of them depends on the batch.
std::optional<std::int64_t> product(const Shape& shape, std::size_t first, std::size_t last);
inline std::optional<std::int64_t> product(const Shape& shape) {
  return product(shape, 0, shape.size());
}
/// Returns the shape that two broadcast to (ONNX, NumPy rules); nothing where they do not fit.
std::optional<Shape> broadcast(const Shape& a, const Shape& b);

}  // namespace trainyard
