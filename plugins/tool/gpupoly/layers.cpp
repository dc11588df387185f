#include "layers.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <trainyard/error.hpp>
#include <trainyard/forward_context.hpp>
#include <trainyard/graph/network.hpp>

namespace gpupoly {
namespace {

using namespace trainyard;

using Shape = std::vector<std::int64_t>;

std::int64_t product(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool image(const Shape& sample) {
  return sample.size() == 3;
}

Map map_of(const Shape& sample) {
  if (image(sample)) return {sample[1], sample[2], sample[0]};
  return {.channels = product(sample)};
}

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  const auto* const data = flat.data_ptr<double>();
  return {data, data + flat.numel()};
}

/// A tensor of one sample in the verifier's order.
std::vector<double> ordered(const at::Tensor& sample) {
  return numbers(sample.dim() == 3 ? sample.permute({1, 2, 0}) : sample);
}

class Reader {
 public:
  explicit Reader(const Graph& graph) : graph_(graph) {
    for (const GraphValue& value : graph.values) initializers_.push_back(value.initializer);
  }

  Layers read() {
    if (graph_.inputs.size() != 1 || graph_.outputs.size() != 1)
      throw ConfigError("gpupoly needs a network with one input and one output; this one has " +
                        std::to_string(graph_.inputs.size()) + " and " +
                        std::to_string(graph_.outputs.size()));
    const ValueId input = graph_.inputs.front(), output = graph_.outputs.front();
    if (!at::isFloatingType(value(input).dtype))
      throw ConfigError("gpupoly bounds functions of numbers; input " + value(input).name +
                        " is of whole ones");
    layers_.input_shape = sample(input, value(input).name);
    layers_.all.push_back({.name = value(input).name, .value = input, .map = map_of(layers_.input_shape)});
    layer_of_[input] = 0;
    for (const Node& node : needed(output)) add(node);
    if (!layer_of_.contains(output) || sample(output, value(output).name).size() != 1)
      throw ConfigError("gpupoly needs an output [batch, numbers]; " + value(output).name + " has shape " +
                        shape_text(value(output).shape));
    if (layer_of_[output] + 1 != layers_.all.size())  // the output of a node that others read, too
      push({.step = Step::select, .name = value(output).name, .parents = {layer_of_[output]}},
           sample(output, ""), identity(output));
    return std::move(layers_);
  }

 private:
  const GraphValue& value(ValueId id) const { return graph_.values[static_cast<std::size_t>(id)]; }
  at::Tensor& initializer(ValueId id) { return initializers_[static_cast<std::size_t>(id)]; }

  [[noreturn]] static void refuse(const Node& node, const std::string& why) {
    throw ConfigError("gpupoly cannot bound node \"" + node.name + "\" (" + node.op + "): " + why);
  }

  /// Those that the output depends on.
  std::vector<Node> needed(ValueId output) const {
    std::set<ValueId> wanted{output};
    std::vector<Node> nodes;
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node)
      if (std::any_of(node->outputs.begin(), node->outputs.end(),
                      [&](ValueId id) { return wanted.contains(id); })) {
        wanted.insert(node->inputs.begin(), node->inputs.end());
        nodes.push_back(*node);
      }
    return {nodes.rbegin(), nodes.rend()};
  }

  /// The shape of a value without its batch.
  Shape sample(ValueId id, const std::string& of) const {
    const Shape& shape = value(id).shape;
    if (shape.size() < 2 || (shape[0] != batch_dim && shape[0] != 1) ||
        std::any_of(shape.begin() + 1, shape.end(), [](std::int64_t dim) { return dim < 1; }))
      throw ConfigError("gpupoly: \"" + of + "\" has shape " + shape_text(shape) +
                        ", needs a batch first and numbers of each sample behind it");
    return {shape.begin() + 1, shape.end()};
  }

  static std::vector<std::int64_t> identity_of(std::int64_t size) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::vector<std::int64_t> identity(ValueId id) const { return identity_of(product(sample(id, ""))); }

  void push(Layer layer, const Shape& shape, std::vector<std::int64_t> from = {}) {
    for (const auto* numbers : {&layer.weights, &layer.bias})
      if (!std::all_of(numbers->begin(), numbers->end(), [](double v) { return std::isfinite(v); }))
        throw ConfigError("gpupoly cannot bound node \"" + layer.name +
                          "\": one of the numbers that it computes with is not finite");
    layer.map = map_of(shape);
    layer.from = std::move(from);
    layers_.all.push_back(std::move(layer));
  }

  std::size_t last() const { return layers_.all.size() - 1; }
  /// The last layer is this value.
  void name_last(ValueId id) {
    layer_of_[id] = last();
    layers_.all.back().value = id;
  }

  void add(const Node& node) {
    std::vector<ValueId> variable;
    for (const ValueId id : node.inputs)
      if (id != no_value && layer_of_.contains(id)) variable.push_back(id);
    if (variable.empty()) return fold(node);
    for (const ValueId id : node.inputs)
      if (id != no_value && !layer_of_.contains(id) && !initializer(id).defined())
        refuse(node, "input " + value(id).name + " is neither a constant nor known");
    if (node.op == "Dropout" || node.op == "Identity") {
      layer_of_[node.outputs.front()] = layer_of_[variable.front()];
      return;
    }
    for (const ValueId id : variable) sample(id, node.name);
    if (variable.size() > 1 && node.op != "Concat") return add_of_two(node);
    if (!add_known(node, variable)) refuse(node, "it has no linear bounds here; see the plugin's README");
  }

  /// A node of constants is one.
  void fold(const Node& node) {
    const std::vector<at::Tensor> results = run(node, {}, {});
    for (std::size_t i = 0; i < node.outputs.size(); ++i) initializer(node.outputs[i]) = results[i];
  }

  /// The outputs of this one node for these inputs, by the program that runs the whole network.
  std::vector<at::Tensor> run(const Node& node, const std::vector<ValueId>& inputs,
                              const std::vector<at::Tensor>& given) {
    Graph one;
    Node copy = node;
    for (ValueId& id : copy.inputs) {
      if (id == no_value) continue;
      GraphValue input = value(id);
      input.initializer = initializer(id);
      input.trainable = false;
      const bool variable = std::find(inputs.begin(), inputs.end(), id) != inputs.end();
      if (variable) input.initializer = at::Tensor();
      if (const ValueId known = one.find_value(input.name); known != no_value) {
        id = known;
        continue;
      }
      id = one.add_value(input);
      if (variable) one.inputs.push_back(id);
    }
    for (ValueId& id : copy.outputs) one.outputs.push_back(id = one.add_value({.name = value(id).name}));
    one.nodes.push_back(copy);
    one.infer_shapes();
    const at::NoGradGuard no_grad;
    return GraphNetwork(one).forward_all(given, {.training = false});
  }

  void add_of_two(const Node& node) {
    const ValueId a = node.inputs[0], b = node.inputs[1], y = node.outputs.front();
    if (node.op != "Add" || value(a).shape != value(b).shape)
      refuse(node,
             "several of its inputs depend on the network's; of such, it bounds sums of two of one shape");
    push({.step = Step::sum, .name = node.name, .parents = {layer_of_[a], layer_of_[b]}, .roundings = 1},
         sample(y, node.name));
    name_last(y);
  }

  bool add_known(const Node& node, const std::vector<ValueId>& variable) {
    const std::string& op = node.op;
    const ValueId x = variable.front();
    if (op == "Gemm" || op == "MatMul")
      add_dense(node, x);
    else if (op == "Conv")
      add_conv(node, x);
    else if (op == "AveragePool" || op == "GlobalAveragePool")
      add_average(node, x);
    else if (op == "MaxPool")
      add_max_pool(node, x);
    else if (op == "Relu")
      push({.step = Step::relu, .name = node.name, .parents = {layer_of_[x]}}, sample(x, node.name));
    else if (op == "BatchNormalization")
      add_batch_norm(node, x);
    else if (op == "LayerNormalization")
      add_layer_norm(node, x);
    else if (op == "Add" || op == "Sub" || op == "Mul" || op == "Div" || op == "Neg")
      add_elementwise(node, x);
    else if (op == "Flatten" || op == "Reshape" || op == "Transpose" || op == "Slice" || op == "Pad" ||
             op == "Split" || op == "Squeeze" || op == "Unsqueeze")
      return add_select(node, x);
    else if (op == "Concat")
      add_concat(node, variable);
    else
      return false;
    name_last(node.outputs.front());
    return true;
  }

  void add_dense(const Node& node, ValueId x) {
    if (node.inputs[0] != x || sample(x, node.name).size() != 1 || node.integer("transA", 0) != 0 ||
        value(node.outputs.front()).shape.size() != 2)
      refuse(node, "it bounds a product [batch, inputs] x constant matrix");
    at::Tensor matrix = initializer(node.inputs[1]).detach().to(at::kDouble);
    if (node.op == "MatMul" || node.integer("transB", 0) == 0) matrix = matrix.t();
    const double alpha = node.number("alpha", 1.0), beta = node.number("beta", 1.0);
    Layer layer{.step = Step::dense,
                .name = node.name,
                .parents = {layer_of_[x]},
                .weights = numbers(matrix * alpha),
                .roundings = matrix.size(1) + (alpha == 1.0 ? 0 : 2)};
    if (node.inputs.size() > 2 && node.inputs[2] != no_value) {
      const at::Tensor bias = initializer(node.inputs[2]).detach().to(at::kDouble) * beta;
      layer.bias = numbers(bias.reshape({-1}).expand({matrix.size(0)}));
      layer.constants = sizes(layer.bias);
      layer.roundings += beta == 1.0 ? 1 : 3;
    }
    if (alpha != 1.0 || beta != 1.0) layer.inexact = 1;
    push(std::move(layer), sample(node.outputs.front(), node.name));
  }

  static std::vector<double> sizes(std::vector<double> values) {
    for (double& v : values) v = std::abs(v);
    return values;
  }

  /// The window of a node on images, as large as a kernel with holes is. How far it goes, the output's shape tells.
  Window window(const Node& node, ValueId x, const Shape& kernel) {
    const Shape in = sample(x, node.name), out = sample(node.outputs.front(), node.name);
    if (!image(in)) refuse(node, "it bounds images [batch, channels, height, width]");
    const Shape strides = node.integers("strides", {1, 1}), steps = node.integers("dilations", {1, 1});
    const std::string pad = node.text("auto_pad", "NOTSET");
    Shape pads = pad == "NOTSET" ? node.integers("pads", {0, 0, 0, 0}) : Shape{0, 0, 0, 0}, size(2);
    for (std::size_t i = 0; i < 2; ++i) {
      size[i] = (kernel[i] - 1) * steps[i] + 1;
      // What has no place in the input is padded on both sides, the odd one at the end or at the begin.
      const std::int64_t missing =
          std::max<std::int64_t>(0, (out[i + 1] - 1) * strides[i] + size[i] - in[i + 1]);
      if (pad == "SAME_UPPER") pads[i] = missing / 2;
      if (pad == "SAME_LOWER") pads[i] = missing - missing / 2;
    }
    return {size[0], size[1], strides[0], strides[1], pads[0], pads[1], steps[0], steps[1]};
  }

  /// How many elements of its input each output pixel of a pool reads: padding is none of them.
  std::vector<double> taps(const Node& node, ValueId x, const Window& over) {
    const Map from = map_of(sample(x, node.name)), to = map_of(sample(node.outputs.front(), node.name));
    std::vector<double> counts(static_cast<std::size_t>(to.height * to.width));
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      over.each_tap(from, at / to.width, at % to.width, [&](std::int64_t, std::int64_t) { ++counts[i]; });
      if (counts[i] == 0) refuse(node, "one of its windows lies in the padding alone");
    }
    return counts;
  }

  void add_conv(const Node& node, ValueId x) {
    const at::Tensor given = initializer(node.inputs[1]).detach().to(at::kDouble);
    if (given.dim() != 4) refuse(node, "it bounds convolutions of two dimensions");
    const std::int64_t groups = node.integer("group", 1), out = given.size(0), in = given.size(1);
    Window over = window(node, x, {given.size(2), given.size(3)});
    at::Tensor full = at::zeros({out, in * groups, over.height, over.width}, at::kDouble);
    for (std::int64_t g = 0; g < groups; ++g)
      full.narrow(0, g * (out / groups), out / groups)
          .narrow(1, g * in, in)
          .slice(2, 0, over.height, over.step_y)
          .slice(3, 0, over.width, over.step_x)
          .copy_(given.narrow(0, g * (out / groups), out / groups));
    over.step_y = over.step_x = 1;
    Layer layer = convolution(node, x, full, over);
    layer.roundings = in * given.size(2) * given.size(3) + 1;
    if (node.inputs.size() > 2 && node.inputs[2] != no_value) {
      const Shape shape = sample(node.outputs.front(), node.name);
      layer.bias = ordered(initializer(node.inputs[2]).detach().reshape({-1, 1, 1}).expand(shape));
      layer.constants = sizes(layer.bias);
    }
    push(std::move(layer), sample(node.outputs.front(), node.name));
  }

  /// `weights` [out, in, height, width].
  Layer convolution(const Node& node, ValueId x, const at::Tensor& weights, const Window& window) {
    return {.step = Step::conv,
            .name = node.name,
            .parents = {layer_of_[x]},
            .window = window,
            .weights = numbers(weights.permute({0, 2, 3, 1}))};
  }

  /// The sum of each window, divided by as many as the program divides it by: what it makes of ones says whether
  /// padding counts.
  void add_average(const Node& node, ValueId x) {
    const Shape shape = sample(x, node.name), out = sample(node.outputs.front(), node.name);
    if (!image(shape)) refuse(node, "it bounds images [batch, channels, height, width]");
    const Window over = node.op == "AveragePool" ? window(node, x, node.integers("kernel_shape", {}))
                                                 : Window{.height = shape[1], .width = shape[2]};
    const std::int64_t channels = shape[0];
    Layer sums = convolution(node, x,
                             at::eye(channels, at::kDouble)
                                 .reshape({channels, channels, 1, 1})
                                 .expand({channels, channels, over.height, over.width}),
                             over);
    sums.roundings = over.height * over.width + 2;  // each may be divided by itself
    push(std::move(sums), out);
    const at::Tensor ones = at::ones({1, channels, shape[1], shape[2]}, value(x).dtype);
    const at::Tensor means = run(node, {x}, {ones}).front()[0].to(at::kDouble);
    const at::Tensor counts = at::tensor(taps(node, x, over), at::kDouble).reshape({out[1], out[2]});
    push({.step = Step::scale,
          .name = node.name,
          .parents = {last()},
          .weights = ordered(means.div(counts).reciprocal().round().reciprocal()),
          .roundings = 4,
          .inexact = 1},
         out);
  }

  void add_max_pool(const Node& node, ValueId x) {
    const Window over = window(node, x, node.integers("kernel_shape", {}));
    taps(node, x, over);
    push({.step = Step::max_pool, .name = node.name, .parents = {layer_of_[x]}, .window = over},
         sample(node.outputs.front(), node.name));
  }

  /// Over the last dimensions, which are elements behind each other.
  void add_layer_norm(const Node& node, ValueId x) {
    const Shape shape = sample(x, node.name);
    const auto rank = static_cast<std::int64_t>(shape.size()) + 1;
    const std::int64_t given = node.integer("axis", -1), axis = given < 0 ? given + rank : given;
    const Shape over(shape.begin() + (axis - 1), shape.end());
    if (image(shape) && over != shape)
      refuse(node, "of images [batch, channels, height, width] it bounds one over all but the batch");
    push({.step = Step::norm,
          .name = node.name,
          .parents = {layer_of_[x]},
          .group = product(over),
          .epsilon = node.number("epsilon", 1e-5)},
         shape);
    const auto constant = [&](std::size_t i) {
      return i < node.inputs.size() && node.inputs[i] != no_value
                 ? initializer(node.inputs[i]).detach().to(at::kCPU, at::kDouble)
                 : at::full({1}, i == 1 ? 1.0 : 0.0, at::kDouble);
    };
    const at::Tensor bias = constant(2);
    scale(node, last(), shape, constant(1), bias, bias.abs(), 4, 0);
  }

  /// y = x weights + bias, of tensors that broadcast over the sample's shape, x being layer `parent` of this shape.
  void scale(const Node& node, std::size_t parent, const Shape& of, const at::Tensor& weights,
             const at::Tensor& bias, const at::Tensor& constants, std::int64_t roundings,
             std::int64_t inexact) {
    const Shape shape = sample(node.outputs.front(), node.name);
    if (shape != of) refuse(node, "it makes another shape of its input");
    const auto all = [&](const at::Tensor& t) { return ordered(t.to(at::kDouble).expand(shape)); };
    push({.step = Step::scale,
          .name = node.name,
          .parents = {parent},
          .weights = all(weights),
          .bias = all(bias),
          .constants = all(constants),
          .roundings = roundings,
          .inexact = inexact},
         shape);
  }

  void add_batch_norm(const Node& node, ValueId x) {
    const Shape shape = sample(x, node.name);
    const auto channel = [&](std::size_t input) {
      Shape wide(shape.size(), 1);
      wide[0] = -1;
      return initializer(node.inputs[input]).detach().to(at::kCPU, at::kDouble).reshape(wide);
    };
    const at::Tensor mean = channel(3);
    const at::Tensor weight = channel(1) / (channel(4) + node.number("epsilon", 1e-5)).sqrt();
    const at::Tensor bias = channel(2) - mean * weight;
    scale(node, layer_of_[x], shape, weight, bias, channel(2).abs() + (mean * weight).abs(), 8, 8);
  }

  void add_elementwise(const Node& node, ValueId x) {
    const bool first = node.inputs[0] == x;
    at::Tensor c = at::zeros({1}, at::kDouble);
    if (node.inputs.size() > 1)
      c = initializer(node.inputs[first ? 1 : 0]).detach().to(at::kCPU, at::kDouble);
    if (static_cast<std::size_t>(c.dim()) == value(x).shape.size()) {
      if (c.size(0) != 1) refuse(node, "its constant is another for each sample");
      c = c.squeeze(0);
    }
    const at::Tensor one = at::ones({1}, at::kDouble), zero = at::zeros({1}, at::kDouble);
    const auto put = [&](const at::Tensor& weights, const at::Tensor& bias, std::int64_t roundings,
                         std::int64_t inexact) {
      scale(node, layer_of_[x], sample(x, node.name), weights, bias, bias.abs(), roundings, inexact);
    };
    if (node.op == "Neg") return put(-one, zero, 0, 0);
    if (node.op == "Add") return put(one, c, 1, 0);
    if (node.op == "Sub") return put(first ? one : -one, first ? -c : c, 1, 0);
    if (node.op == "Mul") return put(c, zero, 1, 0);
    if (!first) refuse(node, "it divides by what depends on the network's input");
    put(c.reciprocal(), zero, 2, 1);
  }

  /// Of elements that a node moves, or fills in: it is run on their numbers.
  bool add_select(const Node& node, ValueId x) {
    for (Moved& moved : moves(node, {x})) {
      push(
          {.step = Step::select, .name = node.name, .parents = {layer_of_[x]}, .bias = std::move(moved.fill)},
          sample(moved.output, node.name), std::move(moved.from));
      name_last(moved.output);
    }
    return true;
  }

  /// Each part at its place among zeros, and the sum of these.
  void add_concat(const Node& node, const std::vector<ValueId>& variable) {
    if (variable.size() != node.inputs.size()) refuse(node, "a constant is one of its parts");
    if (std::set<ValueId>(variable.begin(), variable.end()).size() != variable.size())
      refuse(node, "a part comes twice");
    const ValueId y = node.outputs.front();
    const std::vector<std::int64_t> places = moves(node, variable).front().from;
    std::int64_t begin = 0;
    std::size_t whole = 0;
    for (std::size_t part = 0; part < variable.size(); ++part) {
      const std::int64_t size = product(sample(variable[part], node.name));
      std::vector<std::int64_t> from = places;
      for (std::int64_t& f : from) f = f >= begin && f < begin + size ? f - begin : -1;
      begin += size;
      push({.step = Step::select, .name = node.name, .parents = {layer_of_[variable[part]]}},
           sample(y, node.name), std::move(from));
      if (part > 0)
        push({.step = Step::sum, .name = node.name, .parents = {whole, last()}}, sample(y, node.name));
      whole = last();
    }
  }

  /// An output of a node that moves elements: where each comes from, numbers count through all inputs in the verifier's
  /// order, and what is filled in where that is -1.
  struct Moved {
    ValueId output;
    std::vector<std::int64_t> from;
    std::vector<double> fill;
  };

  /// The node is run on the numbers of its elements, from 1 on, and on the same negated: what stays is filled in.
  std::vector<Moved> moves(const Node& node, const std::vector<ValueId>& inputs) {
    std::vector<at::Tensor> counted, negated;
    std::int64_t end = 1;
    for (const ValueId id : inputs) {
      const Shape shape = sample(id, node.name);
      const std::int64_t begin = std::exchange(end, end + product(shape));
      if (end > 1 << 24) refuse(node, "its input has more elements than single precision can number");
      const at::Tensor numbers = at::arange(begin, end, at::kFloat);
      counted.push_back((image(shape)
                             ? numbers.reshape({shape[1], shape[2], shape[0]}).permute({2, 0, 1}).contiguous()
                             : numbers.reshape(shape))
                            .unsqueeze(0)
                            .to(value(id).dtype));
      negated.push_back(-counted.back());
    }
    const std::vector<at::Tensor> results = run(node, inputs, counted), others = run(node, inputs, negated);
    std::vector<Moved> all;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Shape shape = sample(node.outputs[i], node.name);
      if (results[i].numel() != product(shape)) refuse(node, "it mixes samples");
      const std::vector<double> numbers = ordered(results[i].reshape(shape)),
                                against = ordered(others[i].reshape(shape));
      Moved moved{node.outputs[i], std::vector<std::int64_t>(numbers.size(), -1), {}};
      for (std::size_t e = 0; e < numbers.size(); ++e) {
        const double number = numbers[e];
        if (number == against[e]) {
          moved.fill.resize(numbers.size());
          moved.fill[e] = number;
        } else if (number == -against[e] && number >= 1 && number < static_cast<double>(end) &&
                   number == std::floor(number)) {
          moved.from[e] = static_cast<std::int64_t>(number) - 1;
        } else {
          refuse(node, "it does more than move elements and fill in others");
        }
      }
      all.push_back(std::move(moved));
    }
    return all;
  }

  const Graph& graph_;
  std::vector<at::Tensor> initializers_;
  std::map<ValueId, std::size_t> layer_of_;
  Layers layers_;
};

}  // namespace

std::vector<std::int64_t> order(const std::vector<std::int64_t>& shape) {
  at::Tensor all = at::arange(product(shape), at::kLong).reshape(shape);
  if (image(shape)) all = all.permute({1, 2, 0});
  all = all.contiguous();
  return {all.data_ptr<std::int64_t>(), all.data_ptr<std::int64_t>() + all.numel()};
}

Layers layers_of(const Graph& graph) {
  return Reader(graph).read();
}

}  // namespace gpupoly
