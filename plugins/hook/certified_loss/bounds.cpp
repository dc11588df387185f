#include "bounds.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <trainyard/error.hpp>
#include <trainyard/forward_context.hpp>
#include <trainyard/graph/network.hpp>

namespace certified_loss {

using namespace trainyard;

namespace {

/// Not smaller for a larger input. Of those that are linear, and move or average elements, forms are substituted back;
/// at the others they end in intervals.
const std::set<std::string_view> moving = {
    "AveragePool", "GlobalAveragePool", "Flatten",   "Reshape", "Transpose", "Slice", "Pad",
    "Split",       "Squeeze",           "Unsqueeze", "Concat"};
const std::set<std::string_view> rising = {"MaxPool", "GlobalMaxPool", "Sigmoid",  "Tanh",        "LeakyRelu",
                                           "Elu",     "Selu",          "Softplus", "HardSigmoid", "Softsign"};
/// x times what the second input has, or such; plus the third.
const std::set<std::string_view> linear = {"Gemm", "MatMul", "Conv", "ConvTranspose", "BatchNormalization",
                                           "Add",  "Sub",    "Mul",  "Div",           "Neg"};

/// Whether input `i` of a linear operator is a factor of x; else it is added to it, or neither (a variance).
bool factor(std::string_view op, std::size_t i) {
  if (op == "Add" || op == "Sub") return false;
  if (op == "Mul" || op == "Div" || op == "MatMul") return true;
  return i == 1;
}
bool variance(std::string_view op, std::size_t i) {
  return op == "BatchNormalization" && i == 4;
}

[[noreturn]] void refuse(const Node& node, const std::string& why) {
  throw ConfigError("hook certified_loss cannot bound node \"" + node.name + "\" (" + node.op + "): " + why);
}

}  // namespace

struct Bounds::Step {
  enum class Kind : std::uint8_t { same, sum, difference, relu, moving, rising, affine, norm };
  Kind kind = Kind::same;
  const Node* node = nullptr;
  std::vector<ValueId> variable;    ///< inputs that depend on the network's, each once
  std::vector<ValueId> weights;     ///< of affine: the others
  std::vector<std::size_t> places;  ///< of these, among the node's inputs
  std::unique_ptr<GraphNetwork>
      alone;  ///< of moving, rising and affine: the node, which takes `variable`, then `weights`

  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, const std::vector<at::Tensor>& with) const {
    inputs.insert(inputs.end(), with.begin(), with.end());
    return alone->forward_all(inputs, {.training = false});
  }
};

/// Forms over values of the graph, of which each sample has `each`: [each * batch, ...], form by form.
struct Bounds::Rows {
  std::int64_t each = 0;
  std::vector<at::Tensor> open;  ///< by value; undefined: none reads it
  at::Tensor constant;           ///< [each * batch]

  void add(ValueId id, const at::Tensor& coefficients) {
    at::Tensor& to = open[static_cast<std::size_t>(id)];
    to = to.defined() ? to + coefficients : coefficients;
  }
  at::Tensor& of(ValueId id) { return open[static_cast<std::size_t>(id)]; }
};

namespace {

/// The node by itself: what `inputs` lists comes from outside, other initializers stay.
std::unique_ptr<GraphNetwork> alone(const Graph& graph, const Node& node,
                                    const std::vector<ValueId>& inputs) {
  Graph one;
  std::vector<ValueId> number(graph.values.size(), no_value);
  const auto place = [&](ValueId id, bool outside) {
    ValueId& known = number[static_cast<std::size_t>(id)];
    if (known != no_value) return known;
    GraphValue value = graph.values[static_cast<std::size_t>(id)];
    value.trainable = false;
    if (outside) value.initializer = at::Tensor();
    return known = one.add_value(std::move(value));
  };
  for (const ValueId id : inputs) one.inputs.push_back(place(id, true));
  Node copy = node;
  for (ValueId& id : copy.inputs)
    if (id != no_value) id = place(id, false);
  for (ValueId& id : copy.outputs) one.outputs.push_back(id = place(id, true));
  one.nodes.push_back(std::move(copy));
  one.infer_shapes();
  return std::make_unique<GraphNetwork>(std::move(one));
}

}  // namespace

Bounds::Bounds(const Graph& graph) : graph_(graph) {
  if (graph.inputs.size() != 1 || graph.outputs.size() != 1)
    throw ConfigError("hook certified_loss needs a network with one input and one output; this one has " +
                      std::to_string(graph.inputs.size()) + " and " + std::to_string(graph.outputs.size()));
  const GraphValue &input = graph.values[static_cast<std::size_t>(graph.inputs.front())],
                   &output = graph.values[static_cast<std::size_t>(graph.outputs.front())];
  if (!at::isFloatingType(input.dtype))
    throw ConfigError(
        "hook certified_loss needs a network whose input is numbers that change a little, and " + input.name +
        " is of whole ones; leave it out");
  if (output.shape.size() != 2 || output.shape[1] < 2)
    throw ConfigError("hook certified_loss needs an output for each class, [batch, classes], and " +
                      output.name + " has shape " + shape_text(output.shape) +
                      "; give the model two or more");
  std::vector<bool> depends(graph.values.size());
  depends[static_cast<std::size_t>(graph.inputs.front())] = true;
  for (const Node& node : graph.nodes) {
    Step step{.node = &node};
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == no_value) continue;
      if (!depends[static_cast<std::size_t>(id)]) {
        step.weights.push_back(id);
        step.places.push_back(i);
      } else if (std::find(step.variable.begin(), step.variable.end(), id) == step.variable.end()) {
        step.variable.push_back(id);
      } else if (!moving.contains(node.op)) {
        refuse(node, "both of its inputs are the same");
      }
    }
    const bool two = step.variable.size() == 2;
    using Kind = Step::Kind;
    if (step.variable.empty())
      refuse(node, "it computes from constants alone; store what it gives in its place");
    else if (node.op == "Dropout" || node.op == "Identity")
      step.kind = Kind::same;
    else if (two && (node.op == "Add" || node.op == "Sub"))
      step.kind = node.op == "Add" ? Kind::sum : Kind::difference;
    else if (node.op == "Relu")
      step.kind = Kind::relu;
    else if (moving.contains(node.op))
      step.kind = Kind::moving;
    else if (rising.contains(node.op) && node.number("alpha", 1.0) >= 0.0)
      step.kind = Kind::rising;
    else if (node.op == "LayerNormalization" && step.variable.size() == 1 &&
             node.inputs[0] == step.variable[0])
      step.kind = Kind::norm;
    else if (linear.contains(node.op) && step.variable.size() == 1 &&
             (node.op != "Div" || node.inputs[0] == step.variable[0]))
      step.kind = Kind::affine;
    else
      refuse(node, "it has no bounds here; see the plugin's README");
    if (step.kind == Kind::sum || step.kind == Kind::difference) {
      const auto& shape = [&](std::size_t i) {
        return graph.values[static_cast<std::size_t>(step.variable[i])].shape;
      };
      if (shape(0) != shape(1)) refuse(node, "it stretches one of its inputs");
    }
    std::vector<ValueId> outside = step.variable;
    if (step.kind == Kind::affine) outside.insert(outside.end(), step.weights.begin(), step.weights.end());
    if (step.kind == Kind::affine || step.kind == Kind::moving || step.kind == Kind::rising)
      step.alone = alone(graph, node, outside);
    for (const ValueId id : node.outputs)
      if (id != no_value) depends[static_cast<std::size_t>(id)] = true;
    steps_.push_back(std::move(step));
  }
}

Bounds::~Bounds() = default;

Box Bounds::intervals(const Box& input) {
  boxes_.assign(graph_.values.size(), {});
  boxes_[static_cast<std::size_t>(graph_.inputs.front())] = input;
  for (const Step& step : steps_) {
    std::vector<Box> boxes;
    for (const ValueId id : step.variable) boxes.push_back(boxes_[static_cast<std::size_t>(id)]);
    const auto give = [&](std::size_t output) -> Box& {
      return boxes_[static_cast<std::size_t>(step.node->outputs[output])];
    };
    if (step.kind != Step::Kind::moving && step.kind != Step::Kind::rising) {
      give(0) = interval(step, boxes);
      continue;
    }
    std::vector<at::Tensor> low, up;
    for (const Box& box : boxes) {
      low.push_back(box.lower);
      up.push_back(box.upper);
    }
    low = step.run(low, {});
    up = step.run(up, {});
    for (std::size_t i = 0; i < low.size(); ++i) give(i) = {low[i], up[i]};
  }
  return boxes_[static_cast<std::size_t>(graph_.outputs.front())];
}

Box Bounds::interval(const Step& step, const std::vector<Box>& boxes) const {
  const auto& [lower, upper] = boxes.front();
  switch (step.kind) {
    case Step::Kind::sum: return {lower + boxes[1].lower, upper + boxes[1].upper};
    case Step::Kind::difference: return {lower - boxes[1].upper, upper - boxes[1].lower};
    case Step::Kind::relu: return {lower.relu(), upper.relu()};
    case Step::Kind::norm: return normalized(step, boxes.front());
    case Step::Kind::affine: break;
    default: return boxes.front();
  }
  // The middle goes the node's way; of the distance from it, the sizes of the factors are what counts.
  std::vector<at::Tensor> weights, sizes;
  for (std::size_t i = 0; i < step.weights.size(); ++i) {
    const at::Tensor& weight = graph_.values[static_cast<std::size_t>(step.weights[i])].initializer;
    weights.push_back(weight);
    sizes.push_back(factor(step.node->op, step.places[i])     ? weight.abs()
                    : variance(step.node->op, step.places[i]) ? weight
                                                              : at::zeros_like(weight));
  }
  const at::Tensor middle = step.run({(upper + lower) / 2}, weights).front(),
                   distance = step.run({(upper - lower) / 2}, sizes).front().abs();
  return {middle - distance, middle + distance};
}

/// Of w c / sqrt(mean of c^2 + epsilon) + b, c being x less its mean over the last dimensions: it rises with c, and with
/// the squares of the others it falls where c is above 0 and rises below.
Box Bounds::normalized(const Step& step, const Box& x) const {
  const Node& node = *step.node;
  const std::int64_t given = node.integer("axis", -1), axis = given < 0 ? given + x.lower.dim() : given;
  const at::Tensor low = x.lower.flatten(axis), up = x.upper.flatten(axis);
  const auto n = static_cast<double>(low.size(-1));
  const auto others = [](const at::Tensor& each) { return each.sum(-1, true) - each; };
  const at::Tensor least = low - (low + others(up)) / n, most = up - (up + others(low)) / n;
  const at::Tensor near = others(at::maximum(least, -most).clamp_min(0).square()).clamp_min(0),
                   far = others(at::maximum(-least, most).square());
  const double epsilon = node.number("epsilon", 1e-5);
  const auto end = [&](const at::Tensor& c, const at::Tensor& above, const at::Tensor& below) {
    return (c / ((c.square() + at::where(c > 0, above, below)) / n + epsilon).sqrt())
        .reshape(x.lower.sizes());
  };
  Box y{end(least, far, near), end(most, near, far)};
  for (std::size_t i = 0; i < step.weights.size(); ++i) {
    const at::Tensor& weight = graph_.values[static_cast<std::size_t>(step.weights[i])].initializer;
    if (step.places[i] == 1)
      y = {at::minimum(y.lower * weight, y.upper * weight), at::maximum(y.lower * weight, y.upper * weight)};
    else
      y = {y.lower + weight, y.upper + weight};
  }
  return y;
}

at::Tensor Bounds::margins(const at::Tensor& target) {
  const Box& input = boxes_[static_cast<std::size_t>(graph_.inputs.front())];
  const Box& output = boxes_[static_cast<std::size_t>(graph_.outputs.front())];
  const std::int64_t classes = output.lower.size(1), batch = output.lower.size(0);
  const at::Tensor unit = at::eye(classes, output.lower.options().requires_grad(false));
  Rows rows{.each = classes, .open = std::vector<at::Tensor>(graph_.values.size())};
  rows.constant = at::zeros({classes * batch}, unit.options());
  rows.add(graph_.outputs.front(),
           (unit.index_select(0, target).unsqueeze(0) - unit.unsqueeze(1)).reshape({-1, classes}));
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const auto& outputs = step->node->outputs;
    if (std::none_of(outputs.begin(), outputs.end(), [&](ValueId id) { return rows.of(id).defined(); }))
      continue;
    // All that reads this value comes later, so that its form is complete.
    const at::Tensor form = rows.of(outputs.front());
    switch (step->kind) {
      case Step::Kind::same: rows.add(step->variable[0], form); break;
      case Step::Kind::sum:
      case Step::Kind::difference:
        rows.add(step->variable[0], form);
        rows.add(step->variable[1], step->kind == Step::Kind::sum ? form : -form);
        break;
      case Step::Kind::relu: relu(*step, rows); break;
      case Step::Kind::rising:
      case Step::Kind::norm:
        for (const ValueId id : outputs)
          if (rows.of(id).defined()) end(id, boxes_[static_cast<std::size_t>(id)], rows);
        break;
      default: affine(*step, rows);
    }
    for (const ValueId id : outputs) rows.of(id) = at::Tensor();
  }
  // Where all forms have ended on their way, none is left of the input.
  if (rows.of(graph_.inputs.front()).defined()) end(graph_.inputs.front(), input, rows);
  return rows.constant.reshape({classes, batch}).t();
}

/// The least of the forms over a value in this box becomes a constant.
void Bounds::end(ValueId id, const Box& box, Rows& rows) const {
  const at::Tensor form = rows.of(id).reshape({rows.each, box.lower.size(0), -1});
  const at::Tensor least =
      form.clamp_min(0) * box.lower.flatten(1) + form.clamp_max(0) * box.upper.flatten(1);
  rows.constant = rows.constant + least.sum(2).flatten();
}

/// Lines around max(x, 0) for x in [l, u], l < 0 < u: alpha x below, alpha = 1 where u > -l, else 0; above
/// u (x - l) / (u - l).
void Bounds::relu(const Step& step, Rows& rows) const {
  const at::Tensor form = rows.of(step.node->outputs.front());
  const Box& box = boxes_[static_cast<std::size_t>(step.variable.front())];
  constexpr double nothing = 1e-8;  // keeps 0 / 0 out where a neuron is always off
  const at::Tensor low = box.lower.clamp_max(0), up = at::maximum(box.upper.clamp_min(0), low + nothing);
  const at::Tensor above = up / (up - low), below = above.gt(0.5).to(form.scalar_type());
  std::vector<std::int64_t> shape = low.sizes().vec();
  shape.insert(shape.begin(), rows.each);
  const at::Tensor each = form.reshape(shape), down = each.clamp_max(0);
  rows.constant = rows.constant - (down * (above * low)).flatten(2).sum(2).flatten();
  rows.add(step.variable.front(), (each.clamp_min(0) * below + down * above).reshape(form.sizes()));
}

/// Of f(x) = J x + f(0), forms A become A J, which backward computes, and A f(0) is constant.
void Bounds::affine(const Step& step, Rows& rows) const {
  const at::AutoGradMode tracked(true);
  std::vector<at::Tensor> zeros, weights, outputs, forms;
  for (const ValueId id : step.variable) {
    std::vector<std::int64_t> shape = boxes_[static_cast<std::size_t>(id)].lower.sizes().vec();
    shape.front() *= rows.each;
    zeros.push_back(at::zeros(shape, rows.constant.options()).requires_grad_());
  }
  if (step.kind == Step::Kind::affine)
    for (const ValueId id : step.weights)
      weights.push_back(graph_.values[static_cast<std::size_t>(id)].initializer);
  const std::vector<at::Tensor> all = step.run(zeros, weights);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const at::Tensor form = rows.of(step.node->outputs[i]);
    if (!form.defined()) continue;
    outputs.push_back(all[i]);
    forms.push_back(form.reshape(all[i].sizes()));
    rows.constant = rows.constant + (forms.back() * all[i]).flatten(1).sum(1);
  }
  const auto back = torch::autograd::grad(outputs, zeros, forms, /*retain_graph=*/true, /*create_graph=*/true,
                                          /*allow_unused=*/true);
  for (std::size_t i = 0; i < back.size(); ++i)
    if (back[i].defined()) rows.add(step.variable[i], back[i]);
}

}  // namespace certified_loss
