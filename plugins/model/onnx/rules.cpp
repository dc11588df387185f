// The operators of ONNX that a Graph can express, each with the rule by which a node of any opset from 6 on is written in
// that of the Graph, 23 (https://onnx.ai/onnx/operators/). Adding an operator of the Graph is one row.
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/broadcast_tensors.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "import.hpp"

namespace onnx {
namespace {

using Integers = std::vector<std::int64_t>;

void as_it_is(Import& at) {
  at.emit(at.node().op, at.all_inputs(), at.attributes({"consumed_inputs"}));
}

/// Multiplies or divides sizes of which some are the batch's; returns false where none are.
bool batch_sizes(Import& at) {
  const std::string& op = at.node().op;
  const ValueId a = at.input(0), b = at.input(1);
  const auto whole = [&](ValueId id) {
    return id != no_value && at.value(id).initializer.defined() && at.value(id).dtype == at::kLong;
  };
  if ((op != "Mul" && op != "Div") || !whole(a) || !whole(b)) return false;
  if (std::ranges::none_of(at.integers(a), is_batch) && std::ranges::none_of(at.integers(b), is_batch))
    return false;
  const std::vector<at::Tensor> both = at::broadcast_tensors({at.constant(a), at.constant(b)});
  at::Tensor result = both[0].contiguous().clone();
  const at::Tensor other = both[1].contiguous();
  const std::span of(result.mutable_data_ptr<std::int64_t>(), static_cast<std::size_t>(result.numel()));
  const std::int64_t* by = other.const_data_ptr<std::int64_t>();
  for (std::int64_t& size : of) {
    std::int64_t factor = *by++;
    if (op == "Mul" && is_batch(factor)) std::swap(size, factor);
    const std::int64_t times = is_batch(size) ? size - batch_symbol : size;
    at.require(factor > 0 && (op == "Mul" || times % factor == 0),
               "computes with the size of the batch, which is known in a training step alone");
    size += (op == "Mul" ? times * factor : times / factor) - times;
  }
  at.bind(0, at.hold(result));
  return true;
}

/// Adds to the numbers of the samples, or multiplies them; returns false where none are given.
bool sample_numbers(Import& at) {
  const ValueId a = at.input(0), b = at.input(1);
  const std::int64_t growth = at.growth(a) + at.growth(b);
  if (growth == 0) return false;
  const at::Tensor &x = at.constant(a), &y = at.constant(b);
  if (at.node().op == "Add") {
    at.bind_growing(at.hold(at::add(x, y)), growth);
    return true;
  }
  const at::Tensor& factor = at.growth(a) == 0 ? x : y;
  at.require((at.growth(a) == 0 || at.growth(b) == 0) && factor.numel() == 1,
             "multiplies the numbers of the samples by more than one number");
  at.bind_growing(at.hold(at::mul(x, y)), growth * factor.item<std::int64_t>());
  return true;
}

/// Until opset 6, `axis` said where the second input lies along the first.
void binary(Import& at) {
  if (batch_sizes(at) || sample_numbers(at)) return;
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

/// Returns ONNX's number of a type.
std::int64_t number_of(const Import& at, at::ScalarType type) {
  for (const auto& [number, known] :
       {std::pair(1, at::kFloat), {6, at::kInt}, {7, at::kLong}, {9, at::kBool}, {11, at::kDouble}})
    if (type == known) return number;
  at.fail(std::string("holds ") + c10::toString(type) + ", which nothing is cast to");
}

/// Brings what is the same for all samples to the shape `wanted`, in which the batch is: adds zeros that an input of the
/// network has for each of its samples.
ValueId for_each_sample(Import& at, ValueId x, const Integers& wanted) {
  const ValueId input = at.batched_input();
  const auto batch = std::ranges::find(wanted, batch_symbol + 1);
  at.require(input != no_value && std::ranges::count_if(wanted, is_batch) == 1 && batch != wanted.end(),
             "expands a dimension to the batch, which no input has in front");
  Integers sizes = wanted, places(wanted.size(), 1);
  sizes[static_cast<std::size_t>(batch - wanted.begin())] = 1;
  places[static_cast<std::size_t>(batch - wanted.begin())] = -1;
  const auto rank = static_cast<std::int64_t>(at.shape(input).size());
  Integers axes(static_cast<std::size_t>(rank - 1));
  std::iota(axes.begin(), axes.end(), 1);
  ValueId zeros = input;
  if (!axes.empty())
    zeros = at.step("Slice", {input, at.hold(Integers(axes.size(), 0)), at.hold(Integers(axes.size(), 1)),
                              at.hold(axes)});
  const at::Tensor zero = at::zeros({}, at::TensorOptions(at.value(input).dtype));
  zeros = at.step("Mul", {at.step("Reshape", {zeros, at.hold(places)}), at.hold(zero)});
  if (at.value(input).dtype != at.value(x).dtype)
    zeros = at.step("Cast", {zeros}, {{"to", number_of(at, at.value(x).dtype)}});
  return at.step("Add", {at.step("Expand", {x, at.hold(sizes)}), zeros});
}

void constant_of_shape(Import& at) {
  const Integers wanted = at.integers(at.input(0));
  Integers shape = wanted;
  for (std::int64_t& dim : shape)
    if (is_batch(dim)) dim = 1;
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
  const ValueId made = at.hold(at::full(shape, value.item(), value.options()));
  at.bind(0, shape == wanted ? made : for_each_sample(at, made, wanted));
}

/// Up to the size of the batch it numbers the samples.
void range(Import& at) {
  const auto is_batch_size = [&](ValueId id) {
    return at.value(id).dtype == at::kLong && at.integers(id) == Integers{batch_symbol + 1};
  };
  if (is_batch_size(at.input(1))) {
    at.require(at.constant(at.input(0)).item().toDouble() == 0.0 &&
                   at.constant(at.input(2)).item().toDouble() == 1.0,
               "counts to the size of the batch otherwise than from 0 by 1");
    return at.bind_growing(at.hold(Integers{0}), 1);
  }
  const at::Tensor &first = at.constant(at.input(0)), &last = at.constant(at.input(1)),
                   &step = at.constant(at.input(2));
  for (std::size_t i = 0; i < 3; ++i)
    if (at.value(at.input(i)).dtype == at::kLong)
      at.require(std::ranges::none_of(at.integers(at.input(i)), is_batch), "counts to the size of the batch");
  at.require(step.item().toDouble() != 0.0, "has a step of 0");
  const double count = std::ceil((last.item().toDouble() - first.item().toDouble()) / step.item().toDouble());
  at.require(count <= 1 << 28, "counts from " + std::to_string(first.item().toDouble()) + " to " +
                                   std::to_string(last.item().toDouble()));
  const at::Tensor numbers =
      at::arange(std::max<std::int64_t>(static_cast<std::int64_t>(count), 0), first.options());
  at.bind(0, at.hold(at::add(at::mul(numbers, step), first)));
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

/// Exporters make one initializer of those that are equal and hand it on by an Identity under each other name. One that is
/// the same number throughout is equal by chance, as weights are that begin with ones: each is a tensor of its own again.
void identity(Import& at) {
  const ValueId x = at.input(0);
  const at::Tensor held = at.value(x).initializer;
  if (held.defined() && held.is_floating_point() && held.dim() > 0 && held.numel() > 0 &&
      held.eq(held.flatten()[0]).all().item<bool>())
    return at.bind(0, at.apart(x));
  as_it_is(at);
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

/// Places that are apart, from sample to sample, by as much as a sample has, are the same ones of each: PyTorch's exporter writes a change of
/// strides so.
void gather(Import& at) {
  const ValueId x = at.input(0), places = at.input(1);
  const std::int64_t count = at.growth(places);
  if (count == 0) return as_it_is(at);
  const Integers of_first = at.integers(places);
  Integers shape = at.shape(places);
  at.require(at.shape(x) == Integers{-count} && at.integer("axis", 0) == 0 && !shape.empty() &&
                 shape[0] == 1 &&
                 std::ranges::all_of(of_first, [&](auto place) { return place >= 0 && place < count; }),
             "gathers by the numbers of the samples what is not theirs");
  const ValueId samples = at.step("Reshape", {x, at.hold(Integers{-1, count})});
  Integers all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  if (of_first == all) {
    shape[0] = -1;
    return at.emit("Reshape", {samples, at.hold(shape)}, {});
  }
  const at::Tensor of_each = at.constant(places).squeeze(0).contiguous();
  at.emit("Gather", {samples, at.hold(of_each)}, {{"axis", std::int64_t{1}}});
}

/// Axes: Squeeze, Unsqueeze (13), reductions (18, ReduceSum 13).
void with_axes(Import& at) {
  std::vector<ValueId> inputs = at.all_inputs();
  take_list(at, inputs, 1, "axes");
  if (const std::int64_t growth = at.growth(inputs[0]); growth != 0)
    return at.bind_growing(at.step("Unsqueeze", inputs), growth);
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
  const Integers wanted = at.integers(at.input(1));
  const Integers& from = at.shape(x);
  Integers sizes = wanted;
  bool has_batch = true;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!is_batch(wanted[i])) continue;
    const std::size_t behind = wanted.size() - i;
    has_batch &= behind <= from.size() && from[from.size() - behind] == batch_symbol - wanted[i];
    sizes[i] = 1;
  }
  if (has_batch) return at.emit("Expand", {x, at.hold(sizes)}, {});
  at.bind(0, for_each_sample(at, x, wanted));
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

/// Of height and width alone: scales of samples and channels are 1, and sizes theirs.
void resize(Import& at) {
  at.require(
      at.shape(at.input(0)).size() == 4 && at.opset() >= 11 && at.integer("antialias", 0) == 0 &&
          !at.has("axes") && at.text("keep_aspect_ratio_policy", "stretch") == "stretch",
      "resizes other than height and width of images, or with `antialias`, `axes` or a kept aspect ratio");
  std::vector<ValueId> inputs = at.all_inputs();
  at.require(inputs.size() > 2, "needs scales or sizes");
  const std::size_t given = inputs.size() - 1;
  const at::Tensor of_all = at.constant(inputs[given]).to(at::kDouble);
  at.require(of_all.numel() == 4, "needs four scales or sizes");
  if (given == 2)
    at.require(of_all[0].item().toDouble() == 1.0 && of_all[1].item().toDouble() == 1.0,
               "scales samples or channels");
  else
    at.require(at.integers(inputs[3])[1] == at.shape(inputs[0])[1], "resizes channels");
  inputs[1] = no_value;
  if (given == 3) inputs[2] = no_value;
  inputs[given] = at.hold(at.constant(inputs[given]).slice(0, 2).contiguous());
  Import::Attributes attributes = at.attributes(
      {"antialias", "cubic_coeff_a", "exclude_outside", "extrapolation_value", "keep_aspect_ratio_policy"});
  attributes["axes"] = Integers{2, 3};
  at.emit("Resize", inputs, std::move(attributes));
}

/// Its functions are for the Graph to check.
void rnn(Import& at) {
  at.emit_outputs("RNN", at.all_inputs(), at.attributes({"output_sequence"}), at.node().outputs.size());
}

/// LSTM and GRU, by the functions that are usual.
void recurrent(Import& at) {
  const std::size_t functions = at.node().op == "LSTM" ? 3 : 2;
  const auto* const activations = std::get_if<std::vector<std::string>>(at.attribute("activations"));
  if (activations != nullptr)
    for (std::size_t i = 0; i < activations->size(); ++i)
      at.require((*activations)[i] == (i % functions == 0 ? "Sigmoid" : "Tanh"),
                 "activation " + (*activations)[i] + " is not supported, needs Sigmoid, then Tanh");
  at.require(!at.has("clip") && at.integer("input_forget", 0) == 0,
             "attributes `clip` and `input_forget` are not supported");
  at.emit_outputs(at.node().op, at.all_inputs(),
                  at.attributes({"activations", "input_forget", "output_sequence"}),
                  at.node().outputs.size());
}

struct Row {
  const char* op;
  Rule rule;
};
constexpr Row table[] = {
    {"Abs", as_it_is},
    {"Add", binary},
    {"And", as_it_is},
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
    {"Equal", as_it_is},
    {"Erf", as_it_is},
    {"Exp", as_it_is},
    {"Expand", expand},
    {"Flatten", as_it_is},
    {"Floor", as_it_is},
    {"Gather", gather},
    {"Gelu", as_it_is},
    {"GRU", recurrent},
    {"Gemm", gemm},
    {"GlobalAveragePool", as_it_is},
    {"GlobalMaxPool", as_it_is},
    {"Greater", as_it_is},
    {"GreaterOrEqual", as_it_is},
    {"GroupNormalization", as_it_is},
    {"HardSigmoid", as_it_is},
    {"HardSwish", as_it_is},
    {"Identity", identity},
    {"InstanceNormalization", as_it_is},
    {"LRN", as_it_is},
    {"LSTM", recurrent},
    {"LayerNormalization", as_it_is},
    {"LeakyRelu", as_it_is},
    {"Less", as_it_is},
    {"LessOrEqual", as_it_is},
    {"Log", as_it_is},
    {"LogSoftmax", softmax},
    {"MatMul", as_it_is},
    {"Max", as_it_is},
    {"MaxPool", as_it_is},
    {"Min", as_it_is},
    {"Mish", as_it_is},
    {"Mod", as_it_is},
    {"Mul", binary},
    {"Neg", as_it_is},
    {"Not", as_it_is},
    {"Or", as_it_is},
    {"PRelu", prelu},
    {"Pad", pad},
    {"Pow", binary},
    {"RNN", rnn},
    {"Range", range},
    {"Reciprocal", as_it_is},
    {"ReduceMax", with_axes},
    {"ReduceMean", with_axes},
    {"ReduceMin", with_axes},
    {"ReduceSum", with_axes},
    {"Relu", as_it_is},
    {"Reshape", reshape},
    {"Resize", resize},
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
    {"Where", as_it_is},
};

}  // namespace

Rule find_rule(std::string_view op) {
  for (const Row& row : table)
    if (op == row.op) return row.rule;
  return nullptr;
}

}  // namespace onnx
