// The operators of ONNX that a Graph can express, each with the rule by which a node of any opset from 6 on is written in
// that of the Graph, 23 (https://onnx.ai/onnx/operators/). Adding an operator of the Graph is one row.
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "import.hpp"

namespace onnx {
namespace {

using Integers = std::vector<std::int64_t>;

void as_it_is(Import& at) {
  at.emit(at.node().op, at.all_inputs(), at.attributes({"consumed_inputs"}));
}

/// Until opset 6, `axis` said where the second input lies along the first.
void binary(Import& at) {
  ValueId b = at.input(1);
  if (at.opset() < 7 && at.integer("broadcast", 0) != 0 && at.has("axis") && b != no_value) {
    const auto rank = static_cast<std::int64_t>(at.shape(at.input(0)).size());
    const std::int64_t given = at.integer("axis", 0), first = given < 0 ? given + rank : given;
    const auto behind = rank - first - static_cast<std::int64_t>(at.shape(b).size());
    at.require(first >= 0 && behind >= 0, "attribute `axis` = " + std::to_string(given) + " does not fit");
    Integers axes(static_cast<std::size_t>(behind));
    std::iota(axes.begin(), axes.end(), static_cast<std::int64_t>(at.shape(b).size()));
    if (!axes.empty()) b = at.step("Unsqueeze", {b, at.hold(axes)});
  }
  at.emit(at.node().op, {at.input(0), b}, at.attributes({"axis", "broadcast", "consumed_inputs"}));
}

void gemm(Import& at) {
  at.emit("Gemm", at.all_inputs(), at.attributes({"broadcast"}));
}

/// Until opset 6, a slope for each channel was [channels].
void prelu(Import& at) {
  ValueId slope = at.input(1);
  const std::size_t rank = slope == no_value ? 0 : at.shape(at.input(0)).size();
  if (at.opset() < 7 && rank > 2 && at.shape(slope).size() == 1 && at.shape(slope).front() > 1) {
    Integers axes(rank - 2);
    std::iota(axes.begin(), axes.end(), 1);
    slope = at.step("Unsqueeze", {slope, at.hold(axes)});
  }
  at.emit("PRelu", {at.input(0), slope}, {});
}

// Constants

void constant(Import& at) {
  at.require(at.node().attributes.size() == 1, "needs one attribute, its value");
  const auto& [name, value] = *at.node().attributes.begin();
  at::Tensor tensor;
  if (const auto* const data = std::get_if<TensorData>(&value))
    tensor = to_tensor(*data, at.model());
  else if (const auto* const sparse = std::get_if<SparseData>(&value))
    tensor = to_tensor(*sparse, at.model());
  else if (const auto* const integer = std::get_if<std::int64_t>(&value))
    tensor = at::tensor(*integer, at::kLong);
  else if (const auto* const number = std::get_if<float>(&value))
    tensor = at::tensor(*number);
  else if (const auto* const integers = std::get_if<Integers>(&value))
    tensor = at::tensor(*integers, at::kLong);
  else if (const auto* const numbers = std::get_if<std::vector<float>>(&value))
    tensor = at::tensor(*numbers);
  else
    at.fail("attribute `" + name + "` is no tensor, number or list of numbers");
  at.bind(0, at.hold(tensor));
}

void constant_of_shape(Import& at) {
  const Integers shape = at.integers(at.input(0));
  at.require(std::ranges::none_of(shape, is_batch), "makes a constant for each sample of a batch");
  at.require(
      elements(shape, at.node().outputs.empty() ? "" : at.node().outputs.front()) <= std::int64_t{1} << 28,
      "makes a constant of shape " + shape_text(shape));
  at::Tensor value = at::tensor(0.0f);
  if (const AttributeValue* const given = at.attribute("value")) {
    const auto* const data = std::get_if<TensorData>(given);
    at.require(data != nullptr, "attribute `value` is not a tensor");
    value = to_tensor(*data, at.model());
  }
  at.require(value.numel() == 1, "attribute `value` needs one number");
  at.bind(0, at.hold(at::full(shape, value.item(), value.options())));
}

/// Its dimensions are known, but for the batch: a symbol stands for that.
void shape(Import& at) {
  const ValueId x = at.input(0);
  const Integers& dims = at.shape(x);
  const auto rank = static_cast<std::int64_t>(dims.size());
  const auto place = [&](std::int64_t index) {
    return std::clamp(index < 0 ? index + rank : index, std::int64_t{0}, rank);
  };
  const std::int64_t first = place(at.integer("start", 0)), last = place(at.integer("end", rank));
  Integers result;
  for (std::int64_t i = first; i < last; ++i) {
    const std::int64_t dim = dims[static_cast<std::size_t>(i)];
    result.push_back(dim < 0 ? batch_symbol - dim : dim);
  }
  at.bind(0, at.hold(result));
}

// Attributes that became inputs

/// Puts an attribute, where the node has it, in the place of input `index`.
void take_list(Import& at, std::vector<ValueId>& inputs, std::size_t index, const char* attribute) {
  if (!at.has(attribute)) return;
  while (inputs.size() <= index) inputs.push_back(no_value);
  at.require(inputs[index] == no_value,
             std::string("has attribute `") + attribute + "` and input " + std::to_string(index) + " for it");
  inputs[index] = at.hold(at.integer_list(attribute));
}

/// Axes: Squeeze, Unsqueeze (13), reductions (18, ReduceSum 13).
void with_axes(Import& at) {
  std::vector<ValueId> inputs = at.all_inputs();
  take_list(at, inputs, 1, "axes");
  at.emit(at.node().op, inputs, at.attributes({"axes"}));
}

void slice(Import& at) {
  std::vector<ValueId> inputs = at.all_inputs();
  take_list(at, inputs, 1, "starts");
  take_list(at, inputs, 2, "ends");
  take_list(at, inputs, 3, "axes");
  at.emit("Slice", inputs, {});
}

/// Bounds are numbers of their own: they do not train.
void clip(Import& at) {
  std::vector<ValueId> inputs = at.all_inputs();
  if (at.opset() < 11) {
    inputs.resize(3, no_value);
    if (at.has("min")) inputs[1] = at.hold(at::tensor(at.number("min", 0)));
    if (at.has("max")) inputs[2] = at.hold(at::tensor(at.number("max", 0)));
  }
  for (std::size_t i = 1; i < inputs.size(); ++i) at.fix(inputs[i]);
  at.emit("Clip", inputs, {});
}

void pad(Import& at) {
  std::vector<ValueId> inputs = at.all_inputs();
  if (at.opset() < 11) {
    take_list(at, inputs, 1, "pads");
    inputs.push_back(at.hold(at::tensor(at.number("value", 0))));
  }
  if (inputs.size() > 2) at.fix(inputs[2]);
  at.emit("Pad", inputs, at.attributes({"pads", "value"}));
}

void split(Import& at) {
  std::vector<ValueId> inputs = at.all_inputs();
  Import::Attributes attributes = at.attributes({"split"});
  take_list(at, inputs, 1, "split");
  const auto parts = static_cast<std::int64_t>(at.node().outputs.size());
  if (inputs.size() < 2) attributes.try_emplace("num_outputs", parts);
  at.emit_outputs("Split", inputs, std::move(attributes), at.node().outputs.size());
}

// Shapes with the batch

/// What is to be written for a dimension of the batch: 0 where it is copied, -1 where it follows from the rest.
Integers reshape_dims(Import& at, ValueId x, Integers wanted) {
  const Integers& from = at.shape(x);
  const bool copies = at.integer("allowzero", 0) == 0;
  // A file that was made for batches of one size has that size in its shapes.
  const auto batch = at.batch_of_file();
  if (batch && !wanted.empty() && wanted.front() == *batch &&
      std::ranges::any_of(from, [](auto d) { return d < 0; }) && std::ranges::none_of(wanted, is_batch))
    wanted.front() = batch_symbol + 1;
  std::int64_t known = 1, all = 1;
  bool free = false;
  for (const std::int64_t dim : from)
    at.require(!__builtin_mul_overflow(all, dim, &all), "reshapes " + shape_text(from));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == 0 && copies && i < from.size())
      wanted[i] = from[i] < 0 ? batch_symbol - from[i] : from[i];
    if (wanted[i] == -1) free = true;
    const std::int64_t dim = is_batch(wanted[i]) ? batch_symbol - wanted[i] : wanted[i] == -1 ? 1 : wanted[i];
    at.require(!__builtin_mul_overflow(known, dim, &known), "reshapes to more elements than memory holds");
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!is_batch(wanted[i])) continue;
    const std::int64_t times = batch_symbol - wanted[i];
    if (copies && i < from.size() && from[i] == times) {
      wanted[i] = 0;
      continue;
    }
    // Then the one that is free is a number.
    if (free) {
      at.require(known != 0 && all % known == 0, "cannot reshape " + shape_text(from));
      std::ranges::replace(wanted, std::int64_t{-1}, all / known);
    }
    wanted[i] = -1;
    free = true;
  }
  at.require(std::ranges::none_of(wanted, is_batch), "has the batch in more than one dimension");
  return wanted;
}

void reshape(Import& at) {
  const ValueId x = at.input(0);
  const Integers wanted = at.has("shape") ? at.integer_list("shape") : at.integers(at.input(1));
  at.emit("Reshape", {x, at.hold(reshape_dims(at, x, wanted))}, at.attributes({"shape", "consumed_inputs"}));
}

/// The batch stays as it is under a 1.
void expand(Import& at) {
  const ValueId x = at.input(0);
  const Integers& from = at.shape(x);
  Integers wanted = at.integers(at.input(1));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!is_batch(wanted[i])) continue;
    const std::size_t behind = wanted.size() - i;
    at.require(behind <= from.size() && from[from.size() - behind] == batch_symbol - wanted[i],
               "expands dimension " + std::to_string(i) + " to the batch, which the input has not");
    wanted[i] = 1;
  }
  at.emit("Expand", {x, at.hold(wanted)}, {});
}

/// Until opset 12 it was over all dimensions from `axis`, 1 if not said, on.
void softmax(Import& at) {
  const ValueId x = at.input(0);
  const auto rank = static_cast<std::int64_t>(at.shape(x).size());
  const std::int64_t axis = at.integer("axis", at.opset() < 13 ? 1 : -1);
  at.require(axis >= -rank && axis < rank, "attribute `axis` = " + std::to_string(axis) + " is outside of " +
                                               std::to_string(rank) + " dimensions");
  const std::int64_t first = axis < 0 ? axis + rank : axis;
  if (at.opset() >= 13 || first == rank - 1) {
    at.emit(at.node().op, {x}, {{"axis", first}});
    return;
  }
  Integers dims = at.shape(x);
  for (std::int64_t& dim : dims)
    if (dim < 0) dim = batch_symbol - dim;
  const ValueId rows = at.step("Flatten", {x}, {{"axis", first}});
  const ValueId result = at.step(at.node().op, {rows}, {{"axis", std::int64_t{1}}});
  at.emit("Reshape", {result, at.hold(reshape_dims(at, result, dims))}, {});
}

// Layers

/// Running statistics are buffers. What a training pass does with them the run decides.
void batch_norm(Import& at) {
  at.require(at.integer("spatial", 1) == 1,
             "attribute `spatial` = 0 (statistics of each place) is not supported");
  std::vector<ValueId> inputs = at.all_inputs();
  for (std::size_t i = 3; i < inputs.size(); ++i) {
    at.constant(inputs[i]);
    at.fix(inputs[i]);
  }
  at.emit("BatchNormalization", inputs,
          at.attributes({"consumed_inputs", "is_test", "spatial", "training_mode"}));
}

/// A site that the run's dropout serves: what the file's ratio is does not matter.
void dropout(Import& at) {
  at.emit("Dropout", {at.input(0)}, {});
}

void lstm(Import& at) {
  const auto* const activations = std::get_if<std::vector<std::string>>(at.attribute("activations"));
  if (activations != nullptr)
    for (std::size_t i = 0; i < activations->size(); ++i)
      at.require((*activations)[i] == (i % 3 == 0 ? "Sigmoid" : "Tanh"),
                 "activation " + (*activations)[i] + " is not supported, needs Sigmoid, Tanh, Tanh");
  at.require(!at.has("clip") && at.integer("input_forget", 0) == 0,
             "attributes `clip` and `input_forget` are not supported");
  at.emit_outputs("LSTM", at.all_inputs(), at.attributes({"activations", "input_forget", "output_sequence"}),
                  at.node().outputs.size());
}

struct Row {
  const char* op;
  Rule rule;
};
constexpr Row table[] = {
    {"Abs", as_it_is},
    {"Add", binary},
    {"Attention", as_it_is},
    {"AveragePool", as_it_is},
    {"BatchNormalization", batch_norm},
    {"Cast", as_it_is},
    {"Ceil", as_it_is},
    {"Clip", clip},
    {"Concat", as_it_is},
    {"Constant", constant},
    {"ConstantOfShape", constant_of_shape},
    {"Conv", as_it_is},
    {"ConvTranspose", as_it_is},
    {"Cos", as_it_is},
    {"Div", binary},
    {"Dropout", dropout},
    {"Elu", as_it_is},
    {"Erf", as_it_is},
    {"Exp", as_it_is},
    {"Expand", expand},
    {"Flatten", as_it_is},
    {"Floor", as_it_is},
    {"Gather", as_it_is},
    {"Gelu", as_it_is},
    {"Gemm", gemm},
    {"GlobalAveragePool", as_it_is},
    {"GlobalMaxPool", as_it_is},
    {"GroupNormalization", as_it_is},
    {"HardSigmoid", as_it_is},
    {"HardSwish", as_it_is},
    {"Identity", as_it_is},
    {"InstanceNormalization", as_it_is},
    {"LRN", as_it_is},
    {"LSTM", lstm},
    {"LayerNormalization", as_it_is},
    {"LeakyRelu", as_it_is},
    {"Log", as_it_is},
    {"LogSoftmax", softmax},
    {"MatMul", as_it_is},
    {"Max", as_it_is},
    {"MaxPool", as_it_is},
    {"Min", as_it_is},
    {"Mish", as_it_is},
    {"Mul", binary},
    {"Neg", as_it_is},
    {"PRelu", prelu},
    {"Pad", pad},
    {"Pow", binary},
    {"Reciprocal", as_it_is},
    {"ReduceMax", with_axes},
    {"ReduceMean", with_axes},
    {"ReduceMin", with_axes},
    {"ReduceSum", with_axes},
    {"Relu", as_it_is},
    {"Reshape", reshape},
    {"Selu", as_it_is},
    {"Shape", shape},
    {"Sigmoid", as_it_is},
    {"Sign", as_it_is},
    {"Sin", as_it_is},
    {"Slice", slice},
    {"Softmax", softmax},
    {"Softplus", as_it_is},
    {"Softsign", as_it_is},
    {"Split", split},
    {"Sqrt", as_it_is},
    {"Squeeze", with_axes},
    {"Sub", binary},
    {"Sum", as_it_is},
    {"Tanh", as_it_is},
    {"Tile", as_it_is},
    {"Transpose", as_it_is},
    {"Unsqueeze", with_axes},
};

}  // namespace

Rule find_rule(std::string_view op) {
  for (const Row& row : table)
    if (op == row.op) return row.rule;
  return nullptr;
}

}  // namespace onnx
