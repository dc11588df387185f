// Writes a Graph layer by layer, and infers shapes as it grows. Parameters get the names and the initial
// distributions of PyTorch's modules, drawn from counter-based streams keyed by parameter name; a layer given
// a `deviation` gets normal weights of that standard deviation and zero biases instead.
//
//   GraphBuilder b(context.schema, context.seed);
//   ValueId x = b.input(0);
//   x = b.relu(b.linear(b.flatten(x), "fc1", 128));
//   x = b.dropout(x, "fc1.dropout");
//   return b.finish(b.linear(x, "fc2", context.schema.classes));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <trainyard/batch.hpp>
#include <trainyard/contract.hpp>
#include <trainyard/graph/graph.hpp>

TRAINYARD_CONTRACT("graph/builder.hpp");

namespace trainyard {

struct ConvOptions {
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t groups = 1;
  bool bias = true;
  double deviation = 0.0;
};

class GraphBuilder {
 public:
  GraphBuilder(const BatchSchema& schema, std::uint64_t seed);

  /// Returns the graph input for field `index` of the schema.
  ValueId input(std::size_t index = 0) const;

  // These layers have parameters; `name` is the node's, parameters are name.weight and name.bias.
  /// Adds a Gemm; x is [rows, in], or [batch, ..., in], which is folded to rows and back.
  ValueId linear(ValueId x, const std::string& name, std::int64_t out, bool bias = true,
                 double deviation = 0.0);
  /// Adds a Gemm with the weight of another layer or embedding: logits tied to `weight`, [out, in].
  ValueId tied_linear(ValueId x, const std::string& name, ValueId weight);
  ValueId conv2d(ValueId x, const std::string& name, std::int64_t out, const ConvOptions& options);
  ValueId batch_norm(ValueId x, const std::string& name, double epsilon = 1e-5, double momentum = 0.1);
  ValueId layer_norm(ValueId x, const std::string& name, double epsilon = 1e-5);  ///< over the last axis
  struct Embedding {
    ValueId output, weight;
  };
  Embedding embedding(ValueId indices, const std::string& name, std::int64_t rows, std::int64_t width,
                      double deviation = 1.0);
  /// Maps x [batch, time, in] to [batch, time, hidden]; zero initial state. Weights are in ONNX's layout:
  /// name.weight_ih [1, 4 hidden, in] and name.weight_hh [1, 4 hidden, hidden], gates i o f c; name.bias [1,
  /// 8 hidden].
  ValueId lstm(ValueId x, const std::string& name, std::int64_t hidden);

  // These layers have no parameters.
  ValueId relu(ValueId x);
  ValueId gelu(ValueId x, bool tanh_approximation = false);
  ValueId sigmoid(ValueId x);
  ValueId tanh(ValueId x);
  ValueId max_pool2d(ValueId x, std::int64_t kernel, std::int64_t stride, std::int64_t padding = 0);
  ValueId average_pool2d(ValueId x, std::int64_t kernel, std::int64_t stride);
  ValueId global_average_pool(ValueId x);
  ValueId flatten(ValueId x, std::int64_t axis = 1);
  ValueId add(ValueId a, ValueId b);
  ValueId mul(ValueId a, ValueId b);
  /// In `shape` 0 copies a dimension, and -1 infers one.
  ValueId reshape(ValueId x, const std::vector<std::int64_t>& shape);
  ValueId transpose(ValueId x, std::vector<std::int64_t> permutation);
  ValueId concat(std::vector<ValueId> xs, std::int64_t axis);
  std::vector<ValueId> split(ValueId x, std::int64_t parts, std::int64_t axis);
  /// Takes the elements start, start + step, ... before `end` of one axis.
  ValueId slice(ValueId x, std::int64_t axis, std::int64_t start, std::int64_t end, std::int64_t step = 1);
  ValueId pad(ValueId x, std::int64_t axis, std::int64_t before, std::int64_t after);  ///< with zeros
  ValueId softmax(ValueId x, std::int64_t axis = -1);
  /// Adds scaled-dot-product attention; q, k, v [batch, time, heads * width]. Its weights are a dropout site,
  /// NAME_weights, that acts where a run names it.
  ValueId attention(ValueId q, ValueId k, ValueId v, const std::string& name, std::int64_t heads,
                    bool causal);
  /// Adds a site that the run's dropout plugin serves; the identity without one, and in evaluation.
  ValueId dropout(ValueId x, const std::string& name, std::int64_t axis = 1);

  /// Adds a node of any operator with one output. `name` may be empty.
  ValueId node(std::string op, std::string name, std::vector<ValueId> inputs,
               std::map<std::string, Attribute, std::less<>> attributes = {});
  /// Add the named initializer: a trainable parameter, or a buffer or constant.
  ValueId parameter(std::string name, at::Tensor tensor);
  ValueId constant(std::string name, at::Tensor tensor);
  /// Draw a parameter, uniform in [-bound, bound] or normal, from the stream of its name.
  ValueId uniform_parameter(const std::string& name, const std::vector<std::int64_t>& shape, double bound);
  ValueId normal_parameter(const std::string& name, const std::vector<std::int64_t>& shape, double deviation);

  /// Returns the shape of a value; valid until the next layer is added.
  const std::vector<std::int64_t>& shape(ValueId x) const {
    return graph_.values[static_cast<std::size_t>(x)].shape;
  }

  /// Checks the graph and gives it away; the builder is empty afterwards. `output` is [batch, ...].
  Graph finish(ValueId output);

 private:
  std::string unique(const std::string& op);
  std::vector<ValueId> add_node(std::string op, std::string name, std::vector<ValueId> inputs,
                                std::map<std::string, Attribute, std::less<>> attributes,
                                std::size_t outputs);
  /// Appends name.weight of that shape and name.bias [shape[0]] to the inputs of a node.
  void weights(std::vector<ValueId>& inputs, const std::string& name, std::vector<std::int64_t> shape,
               bool bias, double deviation);

  BatchSchema schema_;
  std::uint64_t seed_;
  Graph graph_;
  std::map<std::string, int> counts_;
};

}  // namespace trainyard
