#include <trainyard/graph_network.hpp>

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <map>
#include <string_view>
#include <utility>

#include <trainyard/error.hpp>

#include "operators/operator.hpp"

namespace trainyard {

struct GraphNetwork::Program {
  struct Step {
    Call call;
    std::vector<ValueId> release;  ///< values that nobody reads afterwards
    const Node* node;
  };

  Graph graph;
  std::vector<Step> steps;
  std::vector<DropoutSite> sites;
  Frame frame;  ///< initializers stay in it; other values live for a pass

  explicit Program(Graph given) : graph(std::move(given)) {
    if (graph.outputs.size() != 1)
      throw ConfigError("graph: has " + std::to_string(graph.outputs.size()) + " outputs; a network has one");
    for (const GraphValue& value : graph.values) {
      frame.values.push_back(value.initializer);
      if (value.trainable) value.initializer.set_requires_grad(true);
    }
    for (const Node& node : graph.nodes) {
      const NodeView view(graph, node);
      const Operator* entry = find_operator(node.op);
      if (entry == nullptr) view.fail("unknown operator");
      steps.push_back({entry->compile(view), {}, &node});
      if (node.op != "Dropout") continue;
      const std::int64_t axis = view.axis_attribute(1);
      sites.push_back({node.name, axis, view.shape(0)[static_cast<std::size_t>(axis)]});
    }
    plan_releases();
  }

  void plan_releases() {
    constexpr std::size_t never = SIZE_MAX;
    std::vector<std::size_t> last(graph.values.size(), never);
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const ValueId id : graph.nodes[i].outputs)
        if (id != no_value) last[static_cast<std::size_t>(id)] = i;
      for (const ValueId id : graph.nodes[i].inputs)
        if (id != no_value) last[static_cast<std::size_t>(id)] = i;
    }
    last[static_cast<std::size_t>(graph.outputs.front())] = never;
    for (std::size_t id = 0; id < last.size(); ++id)
      if (last[id] != never && !graph.values[id].initializer.defined())
        steps[last[id]].release.push_back(static_cast<ValueId>(id));
  }

  void take_inputs(const std::vector<at::Tensor>& inputs) {
    if (inputs.size() != graph.inputs.size())
      throw PluginError("model: the batch has " + std::to_string(inputs.size()) +
                        " inputs, the graph takes " + std::to_string(graph.inputs.size()));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const GraphValue& expected = graph.values[static_cast<std::size_t>(graph.inputs[i])];
      const at::IntArrayRef sizes = inputs[i].sizes();
      bool fits = sizes.size() == expected.shape.size();
      for (std::size_t d = 0; fits && d < sizes.size(); ++d)
        fits = expected.shape[d] < 0 || expected.shape[d] == sizes[d];
      if (!fits)
        throw PluginError("model: input \"" + expected.name + "\" has shape " + shape_text(sizes.vec()) +
                          ", the graph takes " + shape_text(expected.shape));
      if (inputs[i].scalar_type() != expected.dtype)
        throw PluginError("model: input \"" + expected.name + "\" holds " +
                          c10::toString(inputs[i].scalar_type()) + ", the graph takes " +
                          c10::toString(expected.dtype));
      frame[graph.inputs[i]] = inputs[i];
    }
  }

  /// Drops what a pass that failed has left.
  void clear() {
    for (std::size_t id = 0; id < frame.values.size(); ++id)
      if (!graph.values[id].initializer.defined()) frame.values[id].reset();
  }
};

GraphNetwork::GraphNetwork(Graph graph) : program_(std::make_unique<Program>(std::move(graph))) {}
GraphNetwork::~GraphNetwork() = default;

at::Tensor GraphNetwork::forward(const Batch& batch, const ForwardContext& context) {
  Program& p = *program_;
  p.take_inputs(batch.inputs);
  p.frame.context = context;
  const Node* running = nullptr;
  try {
    for (const Program::Step& step : p.steps) {
      running = step.node;
      step.call(p.frame);
      for (const ValueId id : step.release) p.frame[id].reset();
    }
  } catch (const c10::OutOfMemoryError&) {
    p.clear();
    throw;
  } catch (const c10::Error& error) {
    p.clear();
    throw PluginError("node \"" + running->name + "\" (" + running->op +
                      "): " + error.what_without_backtrace());
  } catch (...) {
    p.clear();
    throw;
  }
  const ValueId output = p.graph.outputs.front();
  if (p.graph.values[static_cast<std::size_t>(output)].initializer.defined()) return p.frame[output];
  return std::move(p.frame[output]);
}

std::vector<NamedTensor> GraphNetwork::parameters() const {
  std::vector<NamedTensor> result;
  for (const GraphValue& value : program_->graph.values)
    if (value.trainable) result.push_back({value.name, value.initializer});
  return result;
}

std::vector<NamedTensor> GraphNetwork::buffers() const {
  std::vector<NamedTensor> result;
  for (const GraphValue& value : program_->graph.values)
    if (value.initializer.defined() && !value.trainable && value.initializer.is_floating_point())
      result.push_back({value.name, value.initializer});
  return result;
}

std::vector<std::int64_t> GraphNetwork::output_shape() const {
  const Shape& shape =
      program_->graph.values[static_cast<std::size_t>(program_->graph.outputs.front())].shape;
  return {shape.begin() + 1, shape.end()};
}

void GraphNetwork::to(at::Device device) {
  c10::NoGradGuard no_grad;
  for (const GraphValue& value : program_->graph.values)
    if (value.initializer.defined()) value.initializer.set_data(value.initializer.to(device));
}

void GraphNetwork::adopt(const std::vector<NamedTensor>& tensors) {
  std::map<std::string_view, const at::Tensor*> given;
  for (const NamedTensor& each : tensors) given.emplace(each.name, &each.tensor);
  std::vector<std::pair<std::size_t, const at::Tensor*>> taken;
  std::vector<GraphValue>& values = program_->graph.values;
  for (std::size_t id = 0; id < values.size(); ++id) {
    const GraphValue& value = values[id];
    if (!value.trainable && (!value.initializer.defined() || !value.initializer.is_floating_point()))
      continue;
    const auto found = given.find(value.name);
    if (found == given.end())
      throw ConfigError("the model that is replaced has no tensor \"" + value.name + "\"");
    const at::Tensor& tensor = *found->second;
    if (tensor.sizes() != value.initializer.sizes() ||
        tensor.scalar_type() != value.initializer.scalar_type())
      throw ConfigError("\"" + value.name + "\" is " + value.initializer.toString() + " of " +
                        shape_text(value.initializer.sizes().vec()) +
                        ", in the model that is replaced it is " + tensor.toString() + " of " +
                        shape_text(tensor.sizes().vec()));
    taken.emplace_back(id, &tensor);
    given.erase(found);
  }
  if (!given.empty())
    throw ConfigError("the model has no tensor \"" + std::string(given.begin()->first) +
                      "\", which the one that is replaced has");
  for (const auto& [id, tensor] : taken) values[id].initializer = program_->frame.values[id] = *tensor;
}

std::span<const DropoutSite> GraphNetwork::dropout_sites() const {
  return program_->sites;
}

void GraphNetwork::set_dropout(Dropout* dropout, std::uint64_t seed) {
  program_->frame.dropout = dropout;
  program_->frame.streams.clear();
  for (const DropoutSite& site : program_->sites)
    program_->frame.streams.emplace_back(seed, "dropout/" + site.id);
}

const Graph* GraphNetwork::graph() const {
  return &program_->graph;
}

}  // namespace trainyard
