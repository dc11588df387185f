#include "network_times.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <trainyard/forward_context.hpp>

#include "machine.hpp"

namespace ops {
namespace {

using namespace trainyard;

using Shape = std::vector<std::int64_t>;

/// Returns whether all are the same; `value` then is it.
bool uniform(const Shape& list, std::int64_t& value) {
  if (list.empty()) return true;
  value = list.front();
  return std::all_of(list.begin(), list.end(), [&](std::int64_t each) { return each == value; });
}

/// Sets batch, size and channels of an input [batch, channels, size, size].
bool set_image(Operator& point, const Shape& shape, std::int64_t batch) {
  if (shape.size() != 4 || shape[0] != batch_dim || shape[2] != shape[3]) return false;
  point.batch = batch;
  point.size = shape[2];
  point.in = point.out = shape[1];
  point.kernel = 1;
  return true;
}

bool set_window(Operator& point, const Node& node) {
  std::int64_t kernel = 1, stride = 1, pads = 0, dilation = 1;
  if (!uniform(node.integers("kernel_shape", {}), kernel) || !uniform(node.integers("strides", {}), stride) ||
      !uniform(node.integers("pads", {}), pads) || !uniform(node.integers("dilations", {}), dilation))
    return false;
  point.kernel = kernel;
  point.stride = stride;
  return dilation == 1 && pads == (node.op == "AveragePool" ? 0 : (kernel - 1) / 2);
}

/// A node with inputs of its own, as the pass of the network gave them.
struct Alone {
  GraphNetwork* network;
  std::size_t node;
  std::vector<at::Tensor> inputs, wanted, directions;
  std::vector<at::Tensor> outputs, gradients;

  void forward() {
    const c10::NoGradGuard guard;
    outputs = network->run_node(node, inputs, {});
  }
  void training() {
    outputs = network->run_node(node, inputs, {.training = true});
    if (wanted.empty()) return;
    std::vector<at::Tensor> roots, given;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      given.push_back(directions[i]);
    }
    if (!roots.empty())
      gradients = torch::autograd::grad(roots, wanted, given, false, false, /*allow_unused=*/true);
  }
};

/// Inputs of all nodes in a training pass.
std::vector<std::vector<at::Tensor>> inputs_of(GraphNetwork& network, const Batch& batch) {
  std::vector<std::vector<at::Tensor>> inputs;
  const int owner = 0;
  network.add_tap(&owner, [&](const NodeActivity& node) {
    // The node has a place for an optional input that is not given, the activity has none.
    std::vector<at::Tensor> all;
    auto given = node.inputs.begin();
    for (const ValueId id : network.graph()->nodes.at(inputs.size()).inputs)
      all.push_back(id == no_value ? at::Tensor() : *given++);
    inputs.push_back(std::move(all));
  });
  network.forward(batch, {.training = true});
  network.remove_tap(&owner);
  return inputs;
}

/// The whole network, with a sum of its outputs as the loss.
struct Whole {
  GraphNetwork* network;
  const Batch* batch;
  std::vector<at::Tensor> wanted;
  at::Tensor direction, output;
  std::vector<at::Tensor> gradients;

  void forward() {
    const c10::NoGradGuard guard;
    output = network->forward(*batch, {});
  }
  void training() {
    output = network->forward(*batch, {.training = true});
    gradients = torch::autograd::grad({output}, wanted, {direction}, false, false, /*allow_unused=*/true);
  }
};

/// Buffers of a network, running statistics among them, which are what they were once it is gone.
class KeptBuffers {
 public:
  explicit KeptBuffers(const GraphNetwork& network) : buffers_(network.buffers()) {
    for (const NamedTensor& each : buffers_) copies_.push_back(each.tensor.clone());
  }
  ~KeptBuffers() {
    const c10::NoGradGuard guard;
    for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].tensor.copy_(copies_[i]);
  }
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;

 private:
  std::vector<NamedTensor> buffers_;
  std::vector<at::Tensor> copies_;
};

/// Makes a node run alone: inputs that the network computed want gradients, if anything before them has parameters.
std::shared_ptr<Alone> alone(GraphNetwork& network, std::size_t index, const std::vector<at::Tensor>& inputs,
                             std::set<ValueId>& trained) {
  const Graph& graph = *network.graph();
  const Node& node = graph.nodes[index];
  auto made = std::make_shared<Alone>();
  made->network = &network;
  made->node = index;
  bool learns = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const GraphValue* value =
        node.inputs[i] == no_value ? nullptr : &graph.values[static_cast<std::size_t>(node.inputs[i])];
    at::Tensor tensor = inputs[i];
    if (value != nullptr && value->trainable) {
      made->wanted.push_back(tensor);
      learns = true;
    } else if (tensor.defined() && trained.contains(node.inputs[i]) && tensor.is_floating_point()) {
      tensor = tensor.detach().clone().requires_grad_();
      made->wanted.push_back(tensor);
      learns = true;
    } else if (tensor.defined()) {
      tensor = tensor.detach();
    }
    made->inputs.push_back(tensor);
  }
  if (learns) trained.insert(node.outputs.begin(), node.outputs.end());
  for (const at::Tensor& each : network.run_node(index, made->inputs, {.training = true}))
    made->directions.push_back(each.is_floating_point() ? at::ones_like(each) : at::Tensor());
  return made;
}

}  // namespace

std::optional<Operator> operator_of(const Graph& graph, const Node& node, std::int64_t batch) {
  Operator point;
  const Shape& input = shape_of(graph, node.inputs.front());
  if (node.op == "Gemm") {
    const Shape& weight = shape_of(graph, node.inputs[1]);
    if (input.size() != 2 || input[0] >= 0 || node.integer("transB", 0) != 1 ||
        node.integer("transA", 0) != 0)
      return std::nullopt;
    return Operator{.op = "linear",
                    .batch = -input[0] * batch,
                    .size = 1,
                    .in = weight[1],
                    .out = weight[0],
                    .kernel = 1};
  }
  if (!set_image(point, input, batch)) return std::nullopt;
  if (node.op == "Conv") {
    const Shape& weight = shape_of(graph, node.inputs[1]);
    point.out = weight[0];
    point.groups = node.integer("group", 1);
    if (weight[2] != weight[3] || !set_window(point, node)) return std::nullopt;
    point.kernel = weight[2];
    return point;
  }
  if (const std::string name = name_of(node.op); !name.empty()) {
    point.op = name;
    return point;
  }
  if (node.op == "MaxPool" || node.op == "AveragePool") {
    point.op = node.op == "MaxPool" ? "max_pool" : "average_pool";
    if (!set_window(point, node)) return std::nullopt;
    return point;
  }
  if ((node.op == "Add" && shape_of(graph, node.inputs[1]) == input)) {
    point.op = "add";
    return point;
  }
  return std::nullopt;
}

Operator in_training(const NodeTimes& node) {
  Operator point = *node.point;
  point.phase = node.first && (point.op == "conv" || point.op == "linear") ? "first" : "training";
  return point;
}

NetworkTimes time_network(GraphNetwork& network, const Batch& batch, const Rounds& rounds,
                          const RandomStream& random, const std::function<bool()>& stop) {
  const Graph& graph = *network.graph();
  const KeptBuffers kept(network);
  NetworkTimes times;
  std::vector<std::function<void()>> calls;
  std::set<ValueId> trained;
  const std::vector<std::vector<at::Tensor>> inputs = inputs_of(network, batch);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const bool first = !node.inputs.empty() && !trained.contains(node.inputs.front());
    const auto made = alone(network, i, inputs[i], trained);
    calls.emplace_back([made] { made->forward(); });
    calls.emplace_back([made] { made->training(); });
    times.nodes.push_back({node.name, node.op, operator_of(graph, node, batch.size()), first, {}, {}});
  }
  const auto whole = std::make_shared<Whole>();
  whole->network = &network;
  whole->batch = &batch;
  for (const NamedTensor& each : network.parameters()) whole->wanted.push_back(each.tensor);
  whole->direction = at::ones_like(network.forward(batch, {.training = true}));
  calls.emplace_back([whole] { whole->forward(); });
  calls.emplace_back([whole] { whole->training(); });

  const std::vector<Timing> timings = time_calls(calls, rounds, process_clock(), random, stop);
  if (timings.empty()) return {};
  times.noisy = noisy(timings);
  for (std::size_t i = 0; i < times.nodes.size(); ++i) {
    times.nodes[i].measured = {timings[2 * i].least, timings[2 * i + 1].least};
    times.sum.forward += times.nodes[i].measured.forward;
    times.sum.training += times.nodes[i].measured.training;
  }
  times.measured = {timings[timings.size() - 2].least, timings.back().least};
  return times;
}

void predict(NetworkTimes& times, const Latencies& latencies) {
  times.predicted = {};
  times.without_prediction = 0;
  for (NodeTimes& node : times.nodes) {
    if (node.point) {
      const auto forward = latencies.seconds(*node.point), both = latencies.seconds(in_training(node));
      if (forward && both) node.predicted = Seconds{*forward, *both};
    }
    const Seconds& best = node.predicted ? *node.predicted : node.measured;
    times.without_prediction += node.predicted ? 0 : 1;
    times.predicted.forward += best.forward;
    times.predicted.training += best.training;
  }
}

}  // namespace ops
