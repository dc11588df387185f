// The fusion rules (Wang et al., "Horizontally Fused Training Array", MLSys 2021, table 1), and those of operators that
// the paper has not. Outputs and gradients of a member are those of the plain operator up to the order of sums.
#include "fused.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv_transpose1d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/conv_transpose3d.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>

#include "convolution.hpp"
#include "linear.hpp"
#include "max_pool.hpp"

namespace hfta {
namespace {

using Shape = std::vector<std::int64_t>;
using Inputs = std::span<const Fused>;
using Outputs = std::vector<Fused>;

bool is_given(const Node& node, std::size_t input) {
  return input < node.inputs.size() && node.inputs[input] != no_value;
}

const Shape& shape_of(const Graph& graph, ValueId id) {
  return graph.values[static_cast<std::size_t>(id)].shape;
}

bool depends_on_batch(const Graph& graph, ValueId id) {
  const Shape& shape = shape_of(graph, id);
  return !shape.empty() && shape.front() < 0;
}

std::vector<at::Tensor> tensors(Inputs inputs) {
  std::vector<at::Tensor> result;
  for (const Fused& input : inputs) result.push_back(input.tensor);
  return result;
}

Outputs all_of(const std::vector<at::Tensor>& outputs, Layout layout) {
  Outputs result;
  for (const at::Tensor& each : outputs) result.push_back({each, layout});
  return result;
}

/// A parameter of each member [B, n, ...] as one of a wider layer [B * n, ...].
at::Tensor joined(const at::Tensor& parameter) {
  return parameter.flatten(0, 1);
}

std::optional<at::Tensor> joined_bias(Inputs inputs, std::size_t i) {
  return i < inputs.size() && inputs[i].tensor.defined() ? std::optional(joined(inputs[i].tensor))
                                                         : std::nullopt;
}

/// With dimensions of 1 behind the members, so that it broadcasts as the plain tensor does.
at::Tensor of_rank(const at::Tensor& tensor, std::int64_t rank) {
  Shape shape = tensor.sizes().vec();
  shape.insert(shape.begin() + 1, static_cast<std::size_t>(rank + 1 - tensor.dim()), 1);
  return tensor.reshape(shape);
}

/// What a node makes of a first input whose members are apart; the others are shared.
Outputs one_by_one(const FusedNode& n, Inputs inputs) {
  std::vector<at::Tensor> own = tensors(inputs);
  Outputs outputs(n.node.outputs.size());
  for (const at::Tensor& each : inputs[0].each) {
    own[0] = each;
    const std::vector<at::Tensor> results = n.run(own);
    for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i].each.push_back(results[i]);
  }
  for (Fused& output : outputs) output.layout = Layout::apart;
  return outputs;
}

/// Functions of single elements of input 0.
Outputs elementwise(const FusedNode& n, Inputs inputs) {
  if (inputs[0].layout == Layout::apart) return one_by_one(n, inputs);
  return all_of(n.run(tensors(inputs)), inputs[0].layout);
}

/// Elements of several inputs, broadcast.
Outputs broadcast(const FusedNode& n, Inputs inputs) {
  const bool alike = std::ranges::all_of(inputs, [&](const Fused& each) {
    return each.layout == Layout::channels && each.tensor.sizes() == inputs[0].tensor.sizes();
  });
  if (alike) return all_of(n.run(tensors(inputs)), Layout::channels);
  std::int64_t rank = 0;
  for (const ValueId id : n.node.inputs)
    rank = std::max(rank, static_cast<std::int64_t>(shape_of(n.graph, id).size()));
  std::vector<at::Tensor> aligned;
  for (const Fused& each : inputs)
    aligned.push_back(each.layout == Layout::shared ? each.tensor
                                                    : of_rank(as_members(each, n.members), rank));
  return all_of(n.run(aligned), Layout::members);
}

/// Operators that treat the samples of a batch one by one: B batches are one of B times the size.
Outputs folded(const FusedNode& n, Inputs inputs) {
  std::vector<at::Tensor> folds;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    folds.push_back(is_given(n.node, i) && depends_on_batch(n.graph, n.node.inputs[i])
                        ? as_members(inputs[i], n.members).flatten(0, 1)
                        : inputs[i].tensor);
  std::vector<at::Tensor> outputs = n.run(folds);
  for (at::Tensor& output : outputs)
    if (output.defined()) output = output.unflatten(0, {n.members, output.size(0) / n.members});
  return all_of(outputs, Layout::members);
}

/// Poolings, whose channels are apart.
Outputs pooled(const FusedNode& n, Inputs inputs) {
  if (inputs[0].layout == Layout::apart) return one_by_one(n, inputs);
  return inputs[0].layout == Layout::channels ? all_of(n.run(tensors(inputs)), Layout::channels)
                                              : folded(n, inputs);
}

Outputs max_pooled(const FusedNode& n, Inputs inputs) {
  Fused x = inputs[0], y{.tensor = {}, .layout = x.layout};
  if (is_for_kernel(n, x)) {
    for (const at::Tensor& each : x.each) y.each.push_back(max_pool(n, each));
    if (x.tensor.defined()) y.tensor = max_pool(n, x.tensor);
    return {y};
  }
  if (!n.relu) return pooled(n, inputs);
  for (at::Tensor& each : x.each) each = at::relu(each);
  if (x.tensor.defined()) x.tensor = at::relu(x.tensor);
  return pooled(n, Inputs(&x, 1));
}

Outputs gemm(const FusedNode& n, Inputs inputs) {
  return {{linear(n, inputs[0], inputs[1], inputs.size() > 2 ? inputs[2] : Fused{}), Layout::members}};
}

Outputs matmul(const FusedNode& n, Inputs inputs) {
  const auto rank = static_cast<std::int64_t>(
      std::max(shape_of(n.graph, n.node.inputs[0]).size(), shape_of(n.graph, n.node.inputs[1]).size()));
  const auto aligned = [&](const Fused& each) { return of_rank(as_members(each, n.members), rank); };
  return {{at::matmul(aligned(inputs[0]), aligned(inputs[1])), Layout::members}};
}

/// Of a convolution of so many dimensions; `groups` as in a plain model.
ConvolutionShape convolution_of(const Node& node, std::size_t dimensions) {
  ConvolutionShape shape{.strides = node.integers("strides", Shape(dimensions, 1)),
                         .dilations = node.integers("dilations", Shape(dimensions, 1)),
                         .padding = node.integers("pads", Shape(2 * dimensions, 0)),
                         .groups = node.integer("group", 1)};
  shape.padding.resize(dimensions);
  return shape;
}

bool has_plain_window(const Graph& graph, const Node& node) {
  const std::size_t dimensions = shape_of(graph, node.inputs[0]).size() - 2;
  const Shape pads = node.integers("pads", Shape(2 * dimensions, 0));
  const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(dimensions);
  return node.text("auto_pad", "NOTSET") == "NOTSET" && std::equal(pads.begin(), middle, middle);
}

Outputs convolution(const FusedNode& n, Inputs inputs) {
  const std::size_t dimensions = shape_of(n.graph, n.node.inputs[0]).size() - 2;
  const ConvolutionShape shape = convolution_of(n.node, dimensions);
  const bool has_bias = inputs.size() > 2 && inputs[2].tensor.defined();
  return {convolve(choose_convolution(shape, inputs[0], inputs[1].tensor), shape, inputs[0], inputs[1].tensor,
                   has_bias ? std::optional(inputs[2].tensor) : std::nullopt)};
}

Outputs transposed_convolution(const FusedNode& n, Inputs inputs) {
  const at::Tensor x = as_channels(inputs[0], n.members), weight = joined(inputs[1].tensor);
  const ConvolutionShape w = convolution_of(n.node, static_cast<std::size_t>(x.dim()) - 2);
  const Shape added = n.node.integers("output_padding", Shape(w.strides.size(), 0));
  const std::int64_t groups = w.groups * n.members;
  const std::optional<at::Tensor> bias = joined_bias(inputs, 2);
  const auto run = [&](auto function) {
    return function(x, weight, bias, w.strides, w.padding, added, groups, w.dilations);
  };
  switch (w.strides.size()) {
    case 1: return {{run([](auto&&... a) { return at::conv_transpose1d(a...); }), Layout::channels}};
    case 2: return {{run([](auto&&... a) { return at::conv_transpose2d(a...); }), Layout::channels}};
    default: return {{run([](auto&&... a) { return at::conv_transpose3d(a...); }), Layout::channels}};
  }
}

/// The running statistics [B, C] are updated in place, each member's from its own batch.
Outputs batch_norm(const FusedNode& n, Inputs inputs) {
  const double momentum = 1.0 - n.node.number("momentum", 0.9);
  return {{at::batch_norm(as_channels(inputs[0], n.members), joined(inputs[1].tensor),
                          joined(inputs[2].tensor), inputs[3].tensor.view({-1}), inputs[4].tensor.view({-1}),
                          n.pass.training, momentum, n.node.number("epsilon", 1e-5), true),
           Layout::channels}};
}

Outputs group_norm(const FusedNode& n, Inputs inputs) {
  return {{at::group_norm(as_channels(inputs[0], n.members), n.node.integer("num_groups", 1) * n.members,
                          joined(inputs[1].tensor), joined(inputs[2].tensor), n.node.number("epsilon", 1e-5)),
           Layout::channels}};
}

Outputs instance_norm(const FusedNode& n, Inputs inputs) {
  return {
      {at::instance_norm(as_channels(inputs[0], n.members), joined(inputs[1].tensor),
                         joined(inputs[2].tensor), {}, {}, true, 0.0, n.node.number("epsilon", 1e-5), false),
       Layout::channels}};
}

Outputs layer_norm(const FusedNode& n, Inputs inputs) {
  const at::Tensor x = as_members(inputs[0], n.members);
  const Shape& normalized = n.value(n.node.inputs[1]).shape;
  const at::Tensor y = at::layer_norm(x, normalized, {}, {}, n.node.number("epsilon", 1e-5));
  const at::Tensor scale = of_rank(as_members(inputs[1], n.members), x.dim() - 1);
  if (inputs.size() < 3 || !inputs[2].tensor.defined()) return {{at::mul(y, scale), Layout::members}};
  return {{at::addcmul(of_rank(as_members(inputs[2], n.members), x.dim() - 1), y, scale), Layout::members}};
}

/// Rows of the tables of all members, which lie one below the other.
Outputs embedding(const FusedNode& n, Inputs inputs) {
  const at::Tensor& table = inputs[0].tensor;  // [B, rows, width]
  const at::Tensor indices = as_members(inputs[1], n.members);
  Shape first(static_cast<std::size_t>(indices.dim()), 1);
  first[0] = n.members;
  const at::Tensor starts =
      at::mul(at::arange(n.members, indices.options().dtype(at::kLong)), table.size(1)).view(first);
  return {{at::embedding(joined(table), at::add(indices, starts)), Layout::members}};
}

/// One direction; gates in ONNX's order i o f c. Weights [B, 1, 4 hidden, ...], bias [B, 1, 8 hidden].
Outputs lstm(const FusedNode& n, Inputs inputs) {
  const std::int64_t members = n.members;
  const bool batch_first = n.node.integer("layout", 0) != 0;
  const at::Tensor given = as_members(inputs[0], members);
  const at::Tensor x = batch_first ? given.transpose(1, 2) : given;  // [B, time, N, in]
  const std::int64_t time = x.size(1), size = x.size(2);
  const at::Tensor weight = inputs[1].tensor.select(1, 0).transpose(1, 2);
  const at::Tensor recurrent = inputs[2].tensor.select(1, 0).transpose(1, 2);
  const std::int64_t hidden = recurrent.size(1);
  at::Tensor sums = at::bmm(x.reshape({members, time * size, -1}), weight);
  if (is_given(n.node, 3)) {
    const std::vector<at::Tensor> halves = inputs[3].tensor.select(1, 0).chunk(2, 1);
    sums = at::add(sums, at::add(halves[0], halves[1]).unsqueeze(1));
  }
  const std::vector<at::Tensor> steps = sums.view({members, time, size, 4 * hidden}).unbind(1);
  const auto state = [&](std::size_t input) -> at::Tensor {  // [B, N, hidden]
    if (!is_given(n.node, input)) return at::zeros({members, size, hidden}, x.options());
    return as_members(inputs[input], members).select(batch_first ? 2 : 1, 0);
  };
  at::Tensor h = state(5), c = state(6);
  std::vector<at::Tensor> outputs;
  for (const at::Tensor& step : steps) {
    const std::vector<at::Tensor> gate = at::baddbmm(step, h, recurrent).chunk(4, 2);
    c = at::add(at::mul(at::sigmoid(gate[2]), c), at::mul(at::sigmoid(gate[0]), at::tanh(gate[3])));
    h = at::mul(at::sigmoid(gate[1]), at::tanh(c));
    outputs.push_back(h);
  }
  const std::int64_t direction = batch_first ? 2 : 1;
  Outputs result{{at::stack(outputs, batch_first ? 2 : 1).unsqueeze(batch_first ? 3 : 2), Layout::members},
                 {h.unsqueeze(direction), Layout::members},
                 {c.unsqueeze(direction), Layout::members}};
  result.resize(n.node.outputs.size());
  return result;
}

// ---- which nodes a rule fits

bool always(const Graph&, const Node&) {
  return true;
}

bool is_parameter(const Graph& graph, const Node& node, std::size_t input) {
  return is_given(node, input) && graph.values[static_cast<std::size_t>(node.inputs[input])].trainable;
}

/// y = x W^T + b, weight and bias parameters.
bool is_linear(const Graph& graph, const Node& node) {
  return node.integer("transA", 0) == 0 && node.integer("transB", 0) == 1 &&
         node.number("alpha", 1.0) == 1.0 && node.number("beta", 1.0) == 1.0 &&
         is_parameter(graph, node, 1) &&
         (!is_given(node, 2) ||
          (is_parameter(graph, node, 2) && shape_of(graph, node.inputs[2]).size() == 1));
}

bool has_matrices(const Graph& graph, const Node& node) {
  return shape_of(graph, node.inputs[0]).size() >= 2 && shape_of(graph, node.inputs[1]).size() >= 2;
}

bool has_plain_convolution(const Graph& graph, const Node& node) {
  return has_plain_window(graph, node) && is_parameter(graph, node, 1) &&
         (!is_given(node, 2) || is_parameter(graph, node, 2));
}

bool has_own_scale(const Graph& graph, const Node& node) {
  return is_parameter(graph, node, 1) && (!is_given(node, 2) || is_parameter(graph, node, 2));
}

bool has_own_table(const Graph& graph, const Node& node) {
  return node.integer("axis", 0) == 0 && is_parameter(graph, node, 0) &&
         shape_of(graph, node.inputs[0]).size() == 2;
}

bool has_one_direction(const Graph& graph, const Node& node) {
  return node.text("direction", "forward") == "forward" && is_parameter(graph, node, 1) &&
         is_parameter(graph, node, 2) && (!is_given(node, 3) || is_parameter(graph, node, 3));
}

/// The batch stays in front, input 0 and output, and no axis of the operator is the batch's.
bool treats_samples(const Graph& graph, const Node& node) {
  static constexpr std::string_view with_axis[] = {"Softmax", "LogSoftmax", "Concat", "Split"};
  const Shape& shape = shape_of(graph, node.inputs[0]);
  if (std::ranges::find(with_axis, node.op) != std::end(with_axis)) {
    const std::int64_t axis = node.integer("axis", node.op.ends_with("oftmax") ? -1 : 0);
    if (axis == 0 || axis == -static_cast<std::int64_t>(shape.size())) return false;
  }
  // What else it reads, it reads of each sample: a mask of attention is the same for all.
  for (const ValueId id : node.inputs)
    if (id != no_value && !depends_on_batch(graph, id)) {
      const GraphValue& value = graph.values[static_cast<std::size_t>(id)];
      if (!value.initializer.defined() || value.trainable) return false;
    }
  const auto all_batches = [&](const std::vector<ValueId>& ids) {
    return std::ranges::all_of(ids,
                               [&](ValueId id) { return id == no_value || depends_on_batch(graph, id); });
  };
  const bool concat = node.op == "Concat";
  return depends_on_batch(graph, node.inputs[0]) && (!concat || all_batches(node.inputs)) &&
         all_batches(node.outputs);
}

bool selects_in_samples(const Graph& graph, const Node& node) {
  return node.integer("axis", 0) != 0 && !depends_on_batch(graph, node.inputs[1]) &&
         treats_samples(graph, node);
}

struct FusedRule {
  std::string_view op;
  Outputs (*run)(const FusedNode&, Inputs);
  bool (*fits)(const Graph&, const Node&) = always;
};

constexpr FusedRule fused_rules[] = {
    {"Gemm", gemm, is_linear},
    {"MatMul", matmul, has_matrices},
    {"Conv", convolution, has_plain_convolution},
    {"ConvTranspose", transposed_convolution, has_plain_convolution},
    {"BatchNormalization", batch_norm, has_own_scale},
    {"LayerNormalization", layer_norm, has_own_scale},
    {"GroupNormalization", group_norm, has_own_scale},
    {"InstanceNormalization", instance_norm, has_own_scale},
    {"Gather", embedding, has_own_table},
    {"Gather", folded, selects_in_samples},
    {"LSTM", lstm, has_one_direction},
    {"Attention", folded, treats_samples},
    {"MaxPool", max_pooled},
    {"AveragePool", pooled},
    {"GlobalAveragePool", pooled},
    {"GlobalMaxPool", pooled},
    {"LRN", folded},
    {"Softmax", folded, treats_samples},
    {"LogSoftmax", folded, treats_samples},
    {"Flatten", folded, treats_samples},
    {"Reshape", folded, treats_samples},
    {"Squeeze", folded, treats_samples},
    {"Unsqueeze", folded, treats_samples},
    {"Transpose", folded, treats_samples},
    {"Concat", folded, treats_samples},
    {"Split", folded, treats_samples},
    {"Slice", folded, treats_samples},
    {"Pad", folded, treats_samples},
    {"ReduceMax", folded, treats_samples},
    {"ReduceMean", folded, treats_samples},
    {"ReduceMin", folded, treats_samples},
    {"ReduceSum", folded, treats_samples},
    {"Add", broadcast},
    {"Sub", broadcast},
    {"Mul", broadcast},
    {"Div", broadcast},
    {"Pow", broadcast},
    {"PRelu", broadcast},
    {"Sum", broadcast},
    {"Max", broadcast},
    {"Min", broadcast},
    {"Abs", elementwise},
    {"Cast", elementwise},
    {"Ceil", elementwise},
    {"Clip", elementwise},
    {"Cos", elementwise},
    {"Elu", elementwise},
    {"Erf", elementwise},
    {"Exp", elementwise},
    {"Floor", elementwise},
    {"Gelu", elementwise},
    {"HardSigmoid", elementwise},
    {"HardSwish", elementwise},
    {"Identity", elementwise},
    {"LeakyRelu", elementwise},
    {"Log", elementwise},
    {"Mish", elementwise},
    {"Neg", elementwise},
    {"Reciprocal", elementwise},
    {"Relu", elementwise},
    {"Selu", elementwise},
    {"Sigmoid", elementwise},
    {"Sign", elementwise},
    {"Sin", elementwise},
    {"Softplus", elementwise},
    {"Softsign", elementwise},
    {"Sqrt", elementwise},
    {"Tanh", elementwise},
};

const FusedRule* rule_for(const Graph& graph, const Node& node) {
  const auto* rule = std::ranges::find_if(
      fused_rules, [&](const FusedRule& each) { return each.op == node.op && each.fits(graph, node); });
  return rule == std::end(fused_rules) ? nullptr : rule;
}

/// Operators where the run's dropout acts: each member draws numbers of its own, as its plain run does.
bool is_dropped(const Node& node) {
  return node.op == "Dropout" || node.op == "Attention" || node.op == "LSTM";
}

/// Partial fusion: B plain nodes.
Outputs apart(const FusedNode& n, Inputs inputs) {
  const auto members = static_cast<std::size_t>(n.members);
  std::vector<std::vector<at::Tensor>> slices;
  for (const Fused& each : inputs)
    if (each.layout == Layout::apart)
      slices.push_back(each.each);
    else
      slices.push_back(each.tensor.defined() && each.layout != Layout::shared
                           ? as_members(each, n.members).unbind(0)
                           : std::vector<at::Tensor>(members, each.tensor));
  std::vector<std::vector<at::Tensor>> outputs(n.node.outputs.size());
  for (std::size_t b = 0; b < members; ++b) {
    std::vector<at::Tensor> own;
    for (const std::vector<at::Tensor>& each : slices) own.push_back(each[b]);
    const std::vector<at::Tensor> results = n.run(own, b);
    for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i].push_back(results[i]);
  }
  Outputs result;
  for (const std::vector<at::Tensor>& each : outputs)
    result.push_back(each.front().defined() ? Fused{at::stack(each), Layout::members} : Fused{});
  return result;
}

}  // namespace

at::Tensor as_members(const Fused& value, std::int64_t members) {
  if (value.layout == Layout::members) return value.tensor;
  if (value.layout == Layout::apart) return at::stack(value.each);
  if (value.layout == Layout::channels)
    return value.tensor.unflatten(1, {members, value.tensor.size(1) / members}).transpose(0, 1);
  std::vector<std::int64_t> shape = value.tensor.sizes().vec();
  shape.insert(shape.begin(), members);
  return value.tensor.unsqueeze(0).expand(shape);
}

at::Tensor as_channels(const Fused& value, std::int64_t members) {
  if (value.layout == Layout::channels) return value.tensor;
  if (value.layout == Layout::apart) return at::cat(value.each, 1);
  return as_members(value, members).transpose(0, 1).flatten(1, 2);
}

bool has_rule(const Graph& graph, const Node& node, bool dropout) {
  if (node.op == "Dropout") return !dropout;
  return !(dropout && is_dropped(node)) && rule_for(graph, node) != nullptr;
}

std::vector<Fused> run_fused(const FusedNode& n, std::span<const Fused> inputs) {
  const bool shared =
      std::ranges::all_of(inputs, [](const Fused& each) { return each.layout == Layout::shared; });
  // Recurrent states are carried on in evaluations, too: by their expectation.
  const bool acts = n.pass.drops() || n.node.op == "LSTM";
  if (acts && is_dropped(n.node) && n.own[0]->has_dropout()) return apart(n, inputs);
  if (shared && !n.relu) return all_of(n.run(tensors(inputs)), Layout::shared);
  if (n.node.op == "Dropout") return {inputs[0]};
  const FusedRule* rule = rule_for(n.graph, n.node);
  return rule != nullptr ? rule->run(n, inputs) : apart(n, inputs);
}

bool is_ahead_of_relu(const Graph& graph, const Node& node) {
  return node.op == "Gemm" && is_linear(graph, node);
}

bool is_behind_relu(const Graph& graph, const Node& node) {
  return has_close_windows(graph, node);
}

std::vector<std::string_view> fused_operators() {
  std::vector<std::string_view> names{"Dropout"};
  for (const FusedRule& rule : fused_rules) names.push_back(rule.op);
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace hfta
