#include <trainyard/graph/builder.hpp>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include <trainyard/error.hpp>
#include <trainyard/random.hpp>

#include "lib/words.hpp"
#include "operators/operator.hpp"

namespace trainyard {
namespace {

using Attributes = std::map<std::string, Attribute, std::less<>>;

at::Tensor integers(const std::vector<std::int64_t>& numbers) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(numbers.size())}, at::kLong);
  std::copy(numbers.begin(), numbers.end(), tensor.mutable_data_ptr<std::int64_t>());
  return tensor;
}

}  // namespace

GraphBuilder::GraphBuilder(const BatchSchema& schema, std::uint64_t seed) : schema_(schema), seed_(seed) {
  for (const FieldSchema& field : schema_.inputs) {
    GraphValue value;
    value.name = field.name;
    value.shape = field.shape;
    value.shape.insert(value.shape.begin(), batch_dim);
    value.dtype = field.dtype;
    graph_.inputs.push_back(graph_.add_value(std::move(value)));
  }
}

ValueId GraphBuilder::input(std::size_t index) const {
  if (index >= graph_.inputs.size())
    throw ConfigError("model: wants input " + std::to_string(index) + " of the data, which has " +
                      std::to_string(graph_.inputs.size()));
  return graph_.inputs[index];
}

std::string GraphBuilder::unique(const std::string& op) {
  return lib::lower_case(op) + std::to_string(++counts_[op]);
}

std::vector<ValueId> GraphBuilder::add_node(std::string op, std::string name, std::vector<ValueId> inputs,
                                            Attributes attributes, std::size_t outputs) {
  if (name.empty()) name = unique(op);
  Node node{std::move(op), std::move(name), std::move(inputs), {}, std::move(attributes)};
  for (std::size_t i = 0; i < outputs; ++i) {
    GraphValue value;
    value.name = node.name + ":" + std::to_string(i);
    node.outputs.push_back(graph_.add_value(std::move(value)));
  }
  const std::vector<TensorType> types = infer(NodeView(graph_, node));
  for (std::size_t i = 0; i < outputs; ++i) {
    GraphValue& value = graph_.values[static_cast<std::size_t>(node.outputs[i])];
    value.shape = types[i].shape;
    value.dtype = types[i].dtype;
  }
  std::vector<ValueId> result = node.outputs;
  graph_.nodes.push_back(std::move(node));
  return result;
}

ValueId GraphBuilder::node(std::string op, std::string name, std::vector<ValueId> inputs,
                           Attributes attributes) {
  return add_node(std::move(op), std::move(name), std::move(inputs), std::move(attributes), 1).front();
}

ValueId GraphBuilder::parameter(std::string name, at::Tensor tensor) {
  GraphValue value;
  value.name = std::move(name);
  value.initializer = std::move(tensor);
  value.trainable = true;
  return graph_.add_value(std::move(value));
}

ValueId GraphBuilder::constant(std::string name, at::Tensor tensor) {
  GraphValue value;
  value.name = std::move(name);
  value.initializer = std::move(tensor);
  return graph_.add_value(std::move(value));
}

ValueId GraphBuilder::uniform_parameter(const std::string& name, const std::vector<std::int64_t>& shape,
                                        double bound) {
  at::Tensor tensor = at::empty(shape);
  fill_uniform(tensor, RandomStream(seed_, "model/" + name), -bound, bound);
  return parameter(name, std::move(tensor));
}

ValueId GraphBuilder::normal_parameter(const std::string& name, const std::vector<std::int64_t>& shape,
                                       double deviation) {
  at::Tensor tensor = at::empty(shape);
  fill_normal(tensor, RandomStream(seed_, "model/" + name), 0.0, deviation);
  return parameter(name, std::move(tensor));
}

void GraphBuilder::weights(std::vector<ValueId>& inputs, const std::string& name,
                           std::vector<std::int64_t> shape, bool bias, double deviation) {
  const std::int64_t out = shape.front();
  std::int64_t fan_in = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) fan_in *= shape[i];
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  inputs.push_back(deviation == 0.0 ? uniform_parameter(name + ".weight", shape, bound)
                                    : normal_parameter(name + ".weight", shape, deviation));
  if (!bias) return;
  inputs.push_back(deviation == 0.0 ? uniform_parameter(name + ".bias", {out}, bound)
                                    : parameter(name + ".bias", at::zeros({out})));
}

ValueId GraphBuilder::linear(ValueId x, const std::string& name, std::int64_t out, bool bias,
                             double deviation) {
  Shape rows = shape(x);
  if (rows.size() < 2)
    throw ConfigError("node \"" + name + "\" (Gemm): the input has shape " + shape_text(rows) +
                      ", needs [rows, features] or more dimensions");
  const bool fold = rows.size() > 2;
  std::vector<ValueId> inputs = {fold ? flatten(x, static_cast<std::int64_t>(rows.size()) - 1) : x};
  weights(inputs, name, {out, rows.back()}, bias, deviation);
  const ValueId y = node("Gemm", name, std::move(inputs), {{"transB", std::int64_t{1}}});
  if (!fold) return y;
  rows.front() = -1;
  rows.back() = out;
  return reshape(y, rows);
}

ValueId GraphBuilder::tied_linear(ValueId x, const std::string& name, ValueId weight) {
  return node("Gemm", name, {x, weight}, {{"transB", std::int64_t{1}}});
}

ValueId GraphBuilder::conv2d(ValueId x, const std::string& name, std::int64_t out,
                             const ConvOptions& options) {
  if (shape(x).size() != 4)
    throw ConfigError("node \"" + name + "\" (Conv): the input has shape " + shape_text(shape(x)) +
                      ", needs [batch, channels, height, width]");
  if (options.groups < 1)
    throw ConfigError("node \"" + name + "\" (Conv): groups is " + std::to_string(options.groups) +
                      ", needs 1 or more");
  const std::int64_t k = options.kernel, s = options.stride, p = options.padding;
  std::vector<ValueId> inputs = {x};
  weights(inputs, name, {out, shape(x)[1] / options.groups, k, k}, options.bias, options.deviation);
  return node("Conv", name, std::move(inputs),
              {{"kernel_shape", Shape{k, k}},
               {"strides", Shape{s, s}},
               {"pads", Shape{p, p, p, p}},
               {"group", options.groups}});
}

ValueId GraphBuilder::batch_norm(ValueId x, const std::string& name, double epsilon, double momentum) {
  const std::int64_t channels = shape(x).size() < 2 ? 0 : shape(x)[1];
  const ValueId weight = parameter(name + ".weight", at::ones({channels}));
  const ValueId bias = parameter(name + ".bias", at::zeros({channels}));
  const ValueId mean = constant(name + ".running_mean", at::zeros({channels}));
  const ValueId variance = constant(name + ".running_var", at::ones({channels}));
  return node("BatchNormalization", name, {x, weight, bias, mean, variance},
              {{"epsilon", epsilon}, {"momentum", 1.0 - momentum}});
}

ValueId GraphBuilder::layer_norm(ValueId x, const std::string& name, double epsilon) {
  const std::int64_t width = shape(x).back();
  const ValueId weight = parameter(name + ".weight", at::ones({width}));
  const ValueId bias = parameter(name + ".bias", at::zeros({width}));
  return node("LayerNormalization", name, {x, weight, bias},
              {{"axis", std::int64_t{-1}}, {"epsilon", epsilon}});
}

GraphBuilder::Embedding GraphBuilder::embedding(ValueId indices, const std::string& name, std::int64_t rows,
                                                std::int64_t width, double deviation) {
  const ValueId weight = normal_parameter(name + ".weight", {rows, width}, deviation);
  return {node("Gather", name, {weight, indices}), weight};
}

ValueId GraphBuilder::lstm(ValueId x, const std::string& name, std::int64_t hidden) {
  if (shape(x).size() != 3)
    throw ConfigError("node \"" + name + "\" (LSTM): the input has shape " + shape_text(shape(x)) +
                      ", needs [batch, time, features]");
  const double bound = 1.0 / std::sqrt(static_cast<double>(hidden));
  const ValueId w = uniform_parameter(name + ".weight_ih", {1, 4 * hidden, shape(x)[2]}, bound);
  const ValueId r = uniform_parameter(name + ".weight_hh", {1, 4 * hidden, hidden}, bound);
  const ValueId b = uniform_parameter(name + ".bias", {1, 8 * hidden}, bound);
  const ValueId y = node("LSTM", name, {x, w, r, b}, {{"hidden_size", hidden}, {"layout", std::int64_t{1}}});
  const ValueId directions = constant(name + ".axes", integers({2}));
  return node("Squeeze", name + ".squeeze", {y, directions});
}

ValueId GraphBuilder::relu(ValueId x) {
  return node("Relu", "", {x});
}
ValueId GraphBuilder::gelu(ValueId x, bool tanh_approximation) {
  return node("Gelu", "", {x}, {{"approximate", std::string(tanh_approximation ? "tanh" : "none")}});
}
ValueId GraphBuilder::sigmoid(ValueId x) {
  return node("Sigmoid", "", {x});
}
ValueId GraphBuilder::tanh(ValueId x) {
  return node("Tanh", "", {x});
}

ValueId GraphBuilder::max_pool2d(ValueId x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return node("MaxPool", "", {x},
              {{"kernel_shape", Shape{kernel, kernel}},
               {"strides", Shape{stride, stride}},
               {"pads", Shape(4, padding)}});
}

ValueId GraphBuilder::average_pool2d(ValueId x, std::int64_t kernel, std::int64_t stride) {
  return node("AveragePool", "", {x},
              {{"kernel_shape", Shape{kernel, kernel}}, {"strides", Shape{stride, stride}}});
}

ValueId GraphBuilder::global_average_pool(ValueId x) {
  return node("GlobalAveragePool", "", {x});
}
ValueId GraphBuilder::flatten(ValueId x, std::int64_t axis) {
  return node("Flatten", "", {x}, {{"axis", axis}});
}
ValueId GraphBuilder::add(ValueId a, ValueId b) {
  return node("Add", "", {a, b});
}
ValueId GraphBuilder::mul(ValueId a, ValueId b) {
  return node("Mul", "", {a, b});
}

ValueId GraphBuilder::reshape(ValueId x, const std::vector<std::int64_t>& shape) {
  const std::string name = unique("Reshape");
  return node("Reshape", name, {x, constant(name + ".shape", integers(shape))});
}

ValueId GraphBuilder::transpose(ValueId x, std::vector<std::int64_t> permutation) {
  return node("Transpose", "", {x}, {{"perm", std::move(permutation)}});
}

ValueId GraphBuilder::concat(std::vector<ValueId> xs, std::int64_t axis) {
  return node("Concat", "", std::move(xs), {{"axis", axis}});
}

std::vector<ValueId> GraphBuilder::split(ValueId x, std::int64_t parts, std::int64_t axis) {
  return add_node("Split", "", {x}, {{"axis", axis}, {"num_outputs", parts}},
                  static_cast<std::size_t>(parts));
}

ValueId GraphBuilder::slice(ValueId x, std::int64_t axis, std::int64_t start, std::int64_t end,
                            std::int64_t step) {
  const std::string name = unique("Slice");
  return node("Slice", name,
              {x, constant(name + ".starts", integers({start})), constant(name + ".ends", integers({end})),
               constant(name + ".axes", integers({axis})), constant(name + ".steps", integers({step}))});
}

ValueId GraphBuilder::pad(ValueId x, std::int64_t axis, std::int64_t before, std::int64_t after) {
  const std::string name = unique("Pad");
  return node("Pad", name,
              {x, constant(name + ".pads", integers({before, after})), no_value,
               constant(name + ".axes", integers({axis}))});
}

ValueId GraphBuilder::softmax(ValueId x, std::int64_t axis) {
  return node("Softmax", "", {x}, {{"axis", axis}});
}

ValueId GraphBuilder::attention(ValueId q, ValueId k, ValueId v, const std::string& name, std::int64_t heads,
                                bool causal) {
  return node("Attention", name, {q, k, v},
              {{"q_num_heads", heads}, {"kv_num_heads", heads}, {"is_causal", std::int64_t{causal}}});
}

ValueId GraphBuilder::dropout(ValueId x, const std::string& name, std::int64_t axis) {
  return node("Dropout", name, {x}, {{"axis", axis}});
}

Graph GraphBuilder::finish(ValueId output) {
  graph_.outputs = {output};
  if (shape(output).empty() || shape(output).front() != batch_dim)
    throw ConfigError("graph: the output has shape " + shape_text(shape(output)) + ", needs the batch first");
  graph_.infer_shapes();
  return std::move(graph_);
}

}  // namespace trainyard
