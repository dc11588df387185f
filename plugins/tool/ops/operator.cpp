#include "operator.hpp"

#include <map>
#include <utility>

#include <trainyard/error.hpp>
#include <trainyard/graph/builder.hpp>

namespace ops {
namespace {

using namespace trainyard;

ValueId conv(GraphBuilder& b, ValueId x, const std::string& name, std::int64_t out, std::int64_t kernel,
             std::int64_t stride = 1, std::int64_t groups = 1) {
  return b.conv2d(x, name, out,
                  {.kernel = kernel, .stride = stride, .padding = kernel / 2, .groups = groups});
}

/// ONNX's operators by the names of the sweeps, with attributes that are not their defaults.
struct Activation {
  const char* op;
  std::map<std::string, Attribute, std::less<>> attributes;
};
const std::map<std::string, Activation>& by_name() {
  static const std::map<std::string, Activation> known = {
      {"relu", {"Relu", {}}},
      {"leaky_relu", {"LeakyRelu", {}}},
      {"hard_swish", {"HardSwish", {}}},
      {"hard_sigmoid", {"HardSigmoid", {}}},
      {"elu", {"Elu", {}}},
      {"gelu", {"Gelu", {}}},
      {"sigmoid", {"Sigmoid", {}}},
      {"tanh", {"Tanh", {}}},
      {"mish", {"Mish", {}}},
      {"softplus", {"Softplus", {}}},
  };
  return known;
}

/// Blocks of published networks at one width: each takes and returns `in` channels.
ValueId block(GraphBuilder& b, ValueId x, const Operator& p) {
  const std::int64_t c = p.in;
  if (p.op == "separable") return conv(b, conv(b, x, "depth", c, p.kernel, 1, c), "point", p.out, 1);
  if (p.op == "bottleneck") {
    const std::int64_t inner = std::max<std::int64_t>(1, c / 4);
    x = b.relu(conv(b, x, "reduce", inner, 1));
    return conv(b, b.relu(conv(b, x, "middle", inner, p.kernel)), "expand", p.out, 1);
  }
  if (p.op == "inverted_residual") {
    ValueId y = b.relu(conv(b, x, "expand", 6 * c, 1));
    y = b.relu(conv(b, y, "depth", 6 * c, p.kernel, 1, 6 * c));
    return b.add(x, conv(b, y, "project", c, 1));
  }
  if (p.op == "squeeze_excite") {
    const ValueId squeezed =
        b.relu(conv(b, b.global_average_pool(x), "squeeze", std::max<std::int64_t>(1, c / 4), 1));
    return b.mul(x, b.sigmoid(conv(b, squeezed, "excite", c, 1)));
  }
  if (p.op == "shuffle") {
    if (c % 2 != 0) throw ConfigError("a shuffle of two groups needs an even number of channels");
    const ValueId pairs = b.reshape(x, {0, 2, c / 2, p.size * p.size});
    return b.reshape(b.transpose(pairs, {0, 2, 1, 3}), {0, c, p.size, p.size});
  }
  if (p.op == "batch_norm") return b.batch_norm(x, "norm");
  if (p.op == "add") return b.add(x, x);
  if (p.op == "concat") return b.concat({x, x}, 1);
  if (p.op == "max_pool") return b.max_pool2d(x, p.kernel, p.stride, (p.kernel - 1) / 2);
  if (p.op == "average_pool") return b.average_pool2d(x, p.kernel, p.stride);
  if (p.op == "global_pool") return b.global_average_pool(x);
  throw ConfigError("there is no operator " + p.op);
}

}  // namespace

const std::vector<std::string>& activations() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, activation] : by_name()) all.push_back(name);
    return all;
  }();
  return names;
}

const std::vector<std::string>& blocks() {
  static const std::vector<std::string> names = {
      "batch_norm", "add",       "concat",     "max_pool",          "average_pool",  "global_pool",
      "shuffle",    "separable", "bottleneck", "inverted_residual", "squeeze_excite"};
  return names;
}

std::string name_of(const std::string& onnx) {
  if (onnx == "BatchNormalization") return "batch_norm";
  if (onnx == "GlobalAveragePool") return "global_pool";
  for (const auto& [name, activation] : by_name())
    if (activation.op == onnx) return name;
  return "";
}

Graph graph_of(const Operator& p) {
  BatchSchema schema;
  schema.has_target = false;
  FieldSchema input;
  input.name = "x";
  input.shape = p.op == "linear" ? std::vector{p.in} : std::vector{p.in, p.size, p.size};
  schema.inputs = {input};
  GraphBuilder b(schema, 1);
  ValueId y = b.input(0);
  if (p.op == "conv")
    y = conv(b, y, "conv", p.out, p.kernel, p.stride, p.groups);
  else if (p.op == "linear")
    y = b.linear(y, "linear", p.out);
  else if (const auto found = by_name().find(p.op); found != by_name().end())
    y = b.node(found->second.op, "", {y}, found->second.attributes);
  else
    y = block(b, y, p);
  Graph graph = b.finish(y);
  if (p.type == "fp32") return graph;
  if (p.type != "bf16") throw ConfigError("LibTorch runs fp32 and bf16, not " + p.type);
  for (GraphValue& value : graph.values) {
    if (value.dtype != at::kFloat) continue;
    value.dtype = at::kBFloat16;
    if (value.initializer.defined()) value.initializer = value.initializer.to(at::kBFloat16);
  }
  return graph;
}

Work work_of(const Graph& graph, const Operator& p) {
  Work work;
  const auto batch = static_cast<double>(p.batch);
  const double item = p.type == "fp32" ? 4.0 : p.type == "bf16" ? 2.0 : 1.0;
  const auto elements = [&](ValueId id) {
    const GraphValue& value = graph.values[static_cast<std::size_t>(id)];
    double count = 1.0;
    for (const std::int64_t dim : value.shape)
      count *= dim < 0 ? static_cast<double>(-dim) * batch : static_cast<double>(dim);
    return count;
  };
  for (const Node& node : graph.nodes) {
    work.multiply_adds += batch * static_cast<double>(cost(graph, node).multiply_adds);
    for (const ValueId id : node.inputs)
      if (id != no_value) work.bytes += item * elements(id);
    for (const ValueId id : node.outputs) work.bytes += item * elements(id);
  }
  return work;
}

}  // namespace ops
