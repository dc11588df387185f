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
    layers_.all.push_back({.name = value(input).name, .map = map_of(layers_.input_shape)});
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
    layer.map = map_of(shape);
    layer.from = std::move(from);
    layers_.all.push_back(std::move(layer));
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
    if (variable.size() == 2 && node.op != "Concat") return add_of_two(node);
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
      refuse(node, "both of its inputs depend on the network's; of such, it bounds sums of one shape");
    push({.step = Step::sum, .name = node.name, .parents = {layer_of_[a], layer_of_[b]}, .roundings = 1},
         sample(y, node.name));
    layer_of_[y] = layers_.all.size() - 1;
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
    else if (op == "Add" || op == "Sub" || op == "Mul" || op == "Div" || op == "Neg")
      add_elementwise(node, x);
    else if (op == "Flatten" || op == "Reshape" || op == "Transpose" || op == "Slice" || op == "Pad" ||
             op == "Split" || op == "Squeeze" || op == "Unsqueeze")
      return add_select(node, x);
    else if (op == "Concat")
      return add_concat(node, variable);
    else
      return false;
    layer_of_[node.outputs.front()] = layers_.all.size() - 1;
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

  /// The window of a node on images, and the padding at the far ends, which the output's shape tells.
  Window window(const Node& node, ValueId x, const Shape& kernel) {
    if (sample(x, node.name).size() != 3) refuse(node, "it bounds images [batch, channels, height, width]");
    const Shape strides = node.integers("strides", {1, 1}), pads = node.integers("pads", {0, 0, 0, 0});
    if (node.integers("dilations", {1, 1}) != Shape{1, 1})
      refuse(node, "of windows with dilation it has none");
    const std::string pad = node.text("auto_pad", "NOTSET");
    if (pad != "NOTSET" && pad != "VALID") refuse(node, "auto_pad is " + pad + "; write the pads");
    return {kernel[0], kernel[1], strides[0], strides[1], pads[0], pads[1]};
  }

  void add_conv(const Node& node, ValueId x) {
    const at::Tensor given = initializer(node.inputs[1]).detach().to(at::kDouble);
    if (given.dim() != 4) refuse(node, "it bounds convolutions of two dimensions");
    const std::int64_t groups = node.integer("group", 1), out = given.size(0), in = given.size(1);
    at::Tensor full = at::zeros({out, in * groups, given.size(2), given.size(3)}, at::kDouble);
    for (std::int64_t g = 0; g < groups; ++g)
      full.narrow(0, g * (out / groups), out / groups)
          .narrow(1, g * in, in)
          .copy_(given.narrow(0, g * (out / groups), out / groups));
    Layer layer = convolution(node, x, full, window(node, x, {given.size(2), given.size(3)}));
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

  void add_average(const Node& node, ValueId x) {
    const Shape shape = sample(x, node.name);
    Window over{.height = shape[1], .width = shape.back()};
    if (node.op == "AveragePool") {
      over = window(node, x, node.integers("kernel_shape", {}));
      if (over.pad_y != 0 || over.pad_x != 0 || node.integer("ceil_mode", 0) != 0)
        refuse(node, "it bounds averages of whole windows: no padding, no ceil_mode");
    }
    const std::int64_t area = over.height * over.width, channels = shape[0];
    const at::Tensor each = at::eye(channels, at::kDouble) / static_cast<double>(area);
    Layer layer = convolution(
        node, x,
        each.reshape({channels, channels, 1, 1}).expand({channels, channels, over.height, over.width}), over);
    layer.roundings = area + 1;
    layer.inexact = 1;
    push(std::move(layer), sample(node.outputs.front(), node.name));
  }

  void add_max_pool(const Node& node, ValueId x) {
    const Window over = window(node, x, node.integers("kernel_shape", {}));
    if (node.integer("ceil_mode", 0) != 0)
      refuse(node, "it bounds windows that begin by the stride: no ceil_mode");
    push({.step = Step::max_pool, .name = node.name, .parents = {layer_of_[x]}, .window = over},
         sample(node.outputs.front(), node.name));
  }

  /// y = x weights + bias, of tensors that broadcast over the sample's shape.
  void scale(const Node& node, ValueId x, const at::Tensor& weights, const at::Tensor& bias,
             const at::Tensor& constants, std::int64_t roundings, std::int64_t inexact) {
    const Shape shape = sample(node.outputs.front(), node.name);
    if (shape != sample(x, node.name)) refuse(node, "it makes another shape of its input");
    const auto all = [&](const at::Tensor& t) { return ordered(t.to(at::kDouble).expand(shape)); };
    push({.step = Step::scale,
          .name = node.name,
          .parents = {layer_of_[x]},
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
    scale(node, x, weight, bias, channel(2).abs() + (mean * weight).abs(), 8, 8);
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
    if (node.op == "Neg") return scale(node, x, -one, zero, zero, 0, 0);
    if (node.op == "Add") return scale(node, x, one, c, c.abs(), 1, 0);
    if (node.op == "Sub") return scale(node, x, first ? one : -one, first ? -c : c, c.abs(), 1, 0);
    if (node.op == "Mul") return scale(node, x, c, zero, zero, 1, 0);
    if (!first) refuse(node, "it divides by what depends on the network's input");
    scale(node, x, c.reciprocal(), zero, zero, 2, 1);
  }

  /// Of elements that a node moves: it is run on their numbers.
  bool add_select(const Node& node, ValueId x) {
    for (const auto& [output, from] : moved(node, {x})) {
      push({.step = Step::select, .name = node.name, .parents = {layer_of_[x]}}, sample(output, node.name),
           from);
      layer_of_[output] = layers_.all.size() - 1;
    }
    return true;
  }

  /// Each part at its place among zeros, and the sum of these.
  bool add_concat(const Node& node, const std::vector<ValueId>& variable) {
    if (variable.size() != node.inputs.size()) refuse(node, "a constant is one of its parts");
    if (std::set<ValueId>(variable.begin(), variable.end()).size() != variable.size())
      refuse(node, "a part comes twice");
    const ValueId y = node.outputs.front();
    const std::vector<std::int64_t> places = moved(node, variable).front().second;
    std::int64_t begin = 0;
    std::size_t whole = 0;
    for (std::size_t part = 0; part < variable.size(); ++part) {
      const std::int64_t size = product(sample(variable[part], node.name));
      std::vector<std::int64_t> from = places;
      for (std::int64_t& f : from) f = f >= begin && f < begin + size ? f - begin : -1;
      begin += size;
      push({.step = Step::select, .name = node.name, .parents = {layer_of_[variable[part]]}},
           sample(y, node.name), std::move(from));
      const std::size_t placed = layers_.all.size() - 1;
      if (part > 0)
        push({.step = Step::sum, .name = node.name, .parents = {whole, placed}}, sample(y, node.name));
      whole = layers_.all.size() - 1;
    }
    layer_of_[y] = whole;
    return true;
  }

  /// For each output, where its elements come from: numbers count through all `inputs`, in the verifier's order.
  std::vector<std::pair<ValueId, std::vector<std::int64_t>>> moved(const Node& node,
                                                                   const std::vector<ValueId>& inputs) {
    std::vector<at::Tensor> given;
    std::int64_t begin = 1;  // 0 is what a node fills in
    for (const ValueId id : inputs) {
      const Shape shape = sample(id, node.name);
      const std::int64_t size = product(shape);
      if (begin + size > 1 << 24)
        refuse(node, "its input has more elements than single precision can number");
      at::Tensor counted = at::arange(begin, begin + size, at::kFloat);
      counted = image(shape) ? counted.reshape({shape[1], shape[2], shape[0]}).permute({2, 0, 1}).contiguous()
                             : counted.reshape(shape);
      given.push_back(counted.unsqueeze(0).to(value(id).dtype));
      begin += size;
    }
    const std::vector<at::Tensor> results = run(node, inputs, given);
    std::vector<std::pair<ValueId, std::vector<std::int64_t>>> all;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Shape shape = sample(node.outputs[i], node.name);
      if (results[i].numel() != product(shape)) refuse(node, "it mixes samples");
      std::vector<std::int64_t> from;
      for (const double number : ordered(results[i].reshape(shape)))
        from.push_back(static_cast<std::int64_t>(number) - 1);
      if (std::any_of(from.begin(), from.end(), [&](std::int64_t f) { return f < -1 || f >= begin - 1; }))
        refuse(node, "it fills in what is not 0");
      all.emplace_back(node.outputs[i], std::move(from));
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
