#include <trainyard/graph/network.hpp>

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <trainyard/error.hpp>
#include <trainyard/graph/inputs.hpp>

#include "operators/dropout_places.hpp"
#include "operators/operator.hpp"

namespace trainyard {

void check_inputs(const Graph& graph, const std::vector<at::Tensor>& inputs) {
  if (inputs.size() != graph.inputs.size())
    throw PluginError("model: the batch has " + std::to_string(inputs.size()) + " inputs, the graph takes " +
                      std::to_string(graph.inputs.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const GraphValue& expected = graph.values[static_cast<std::size_t>(graph.inputs[i])];
    if (!inputs[i].defined()) throw PluginError("model: input \"" + expected.name + "\" is undefined");
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
  }
}

struct GraphNetwork::Program {
  struct Step {
    Call call;
    std::vector<ValueId> release = {};  ///< values that nobody reads afterwards
    const Node* node;
    std::optional<std::size_t> linear = {}, weight = {};  ///< numbers among the places, of a linear layer
    std::size_t activation = 0;                           ///< steps after that layer that are its activation
    std::optional<std::size_t> site, cell;                ///< numbers among the places
  };

  Graph graph;
  std::vector<Step> steps;
  DropoutPlaces places;
  std::vector<ValueId> masked;                           ///< value of each weight of the places
  std::vector<std::pair<const void*, NetworkTap>> taps;  ///< with their owners
  Frame frame;  ///< initializers stay in it; other values live for a pass

  explicit Program(Graph given) : graph(std::move(given)) {
    if (graph.outputs.empty()) throw ConfigError("graph: has 0 outputs; a network has one");
    for (const GraphValue& value : graph.values) {
      frame.values.push_back(value.initializer);
      if (value.trainable) value.initializer.set_requires_grad(true);
    }
    for (const Node& node : graph.nodes) {
      const NodeView view(graph, node);
      const Operator* entry = find_operator(node.op);
      if (entry == nullptr) view.fail("unknown operator");
      steps.push_back({.call = entry->compile(view),
                       .node = &node,
                       .site = site_number(graph, node),
                       .cell = cell_number(graph, node)});
    }
    plan_releases();
    places = find_dropout_places(graph);
    for (const DropoutWeight& weight : places.weights) masked.push_back(graph.find_value(weight.id));
    for (std::size_t i = 0; i < places.linears.size(); ++i)
      for (Step& step : steps)
        if (step.node->name == places.linears[i].id) step.linear = i;
    for (std::size_t i = 0; i < places.weights.size(); ++i)
      for (std::size_t k = 0; k < steps.size() && places.weights[i].linear; ++k)
        if (steps[k].node->inputs.size() > 1 && steps[k].node->inputs[1] == masked[i]) {
          steps[k].weight = i;
          steps[k].activation = activation_nodes(graph, k);
        }
  }

  void enter(const ForwardContext& context) {
    frame.context = context;
    DropoutService& dropout = frame.dropout;
    dropout.p = dropout.plan == nullptr ? 0.0 : dropout.plan->rate(static_cast<std::int64_t>(context.step));
  }

  /// Runs the steps of one pass from `first` on; `first` is left at the last of them that is done.
  void run_step(std::size_t& first) {
    const Step& step = steps[first];
    if (takes_over(step)) return run_linear(first);
    if (evaluates(step)) return evaluate_linear(first);
    step.call(frame);
    if (!taps.empty()) [[unlikely]]
      show(*step.node, step.node->outputs);
    release(step);
  }

  bool takes_over(const Step& step) const {
    const DropoutService& dropout = frame.dropout;
    return step.linear && dropout.p > 0.0 && frame.context.drops() && dropout.fuses != nullptr &&
           dropout.fuses->fuses(*step.linear);
  }

  /// Runs a linear layer that dropout computes, in place of itself and the nodes that it covers.
  void run_linear(std::size_t& first) {
    const Node& node = *steps[first].node;
    const std::size_t linear = *steps[first].linear;
    const DropoutService& dropout = frame.dropout;
    const std::size_t last = first + nodes_of(dropout.plan->places().linears[linear]) - 1;
    frame[steps[last].node->outputs[0]] =
        dropout.fuses->masked_linear(frame[node.inputs[0]], frame[node.inputs[1]], bias_of(node), linear,
                                     dropout.call(dropout.linears[linear], frame.context));
    finish(first, last);
  }

  bool evaluates(const Step& step) const {
    const DropoutService& dropout = frame.dropout;
    return step.weight && dropout.p > 0.0 && !frame.context.drops() &&
           dropout.plan->places().weights[*step.weight].active && dropout.evaluates != nullptr;
  }

  /// Evaluates a linear layer and its activation by the dropout that masks its weight in training.
  void evaluate_linear(std::size_t& first) {
    const Step& step = steps[first];
    const Node& node = *step.node;
    const std::size_t begin = first, last = first + step.activation;
    const auto activation = [&](const at::Tensor& y) {
      frame[node.outputs[0]] = y;
      for (std::size_t i = begin + 1; i <= last; ++i) steps[i].call(frame);
      return frame[steps[last].node->outputs[0]];
    };
    const DropoutService& dropout = frame.dropout;
    frame[steps[last].node->outputs[0]] = dropout.evaluates->evaluate_linear(
        frame[node.inputs[0]], frame[node.inputs[1]], bias_of(node),
        step.activation == 0 ? EvaluatesLinears::Activation() : activation, *step.weight,
        dropout.call(dropout.weights[*step.weight], frame.context));
    finish(first, last);
  }

  std::optional<at::Tensor> bias_of(const Node& linear) const {
    return frame.optional(linear.inputs.size() > 2 ? linear.inputs[2] : no_value);
  }

  /// Finishes steps `first` to `last`, which ran as one layer: shows it to taps and releases its values.
  void finish(std::size_t& first, std::size_t last) {
    if (!taps.empty()) [[unlikely]]
      show(*steps[first].node, steps[last].node->outputs);
    for (; first < last; ++first) release(steps[first]);
    release(steps[last]);
  }

  void release(const Step& step) {
    for (const ValueId id : step.release) frame[id].reset();
  }

  void show(const Node& node, const std::vector<ValueId>& outputs) {
    const auto tensors = [&](const std::vector<ValueId>& ids) {
      std::vector<at::Tensor> result;
      for (const ValueId id : ids)
        if (id != no_value) result.push_back(frame[id]);
      return result;
    };
    const std::vector<at::Tensor> in = tensors(node.inputs), out = tensors(outputs);
    for (const auto& [owner, tap] : taps) tap({node.name, node.op, in, out});
  }

  /// Replaces the weights by those that dropout has masked, for a pass.
  void mask_weights() {
    const DropoutService& dropout = frame.dropout;
    if (dropout.masks == nullptr || dropout.p == 0.0 || !frame.context.drops()) return;
    for (std::size_t i = 0; i < masked.size(); ++i)
      if (dropout.plan->places().weights[i].active)
        frame[masked[i]] =
            dropout.masks->mask_weight(graph.values[static_cast<std::size_t>(masked[i])].initializer, i,
                                       dropout.call(dropout.weights[i], frame.context));
  }

  void unmask_weights() {
    if (frame.dropout.masks == nullptr) return;
    for (const ValueId id : masked) frame[id] = graph.values[static_cast<std::size_t>(id)].initializer;
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
    for (const ValueId id : graph.outputs) last[static_cast<std::size_t>(id)] = never;
    for (std::size_t id = 0; id < last.size(); ++id)
      if (last[id] != never && !graph.values[id].initializer.defined())
        steps[last[id]].release.push_back(static_cast<ValueId>(id));
  }

  void take_inputs(const std::vector<at::Tensor>& inputs) {
    check_inputs(graph, inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) frame[graph.inputs[i]] = inputs[i];
  }

  const GraphValue& only_output() const {
    if (graph.outputs.size() > 1)
      throw ConfigError("graph: has " + std::to_string(graph.outputs.size()) + " outputs; a model has one");
    return graph.values[static_cast<std::size_t>(graph.outputs.front())];
  }

  std::vector<at::Tensor> take_outputs() {
    std::vector<at::Tensor> result;
    result.reserve(graph.outputs.size());
    for (const ValueId id : graph.outputs) result.push_back(frame[id]);
    for (const ValueId id : graph.outputs)
      if (!graph.values[static_cast<std::size_t>(id)].initializer.defined()) frame[id].reset();
    return result;
  }

  /// Drops the values that a pass has left.
  void clear() {
    for (std::size_t id = 0; id < frame.values.size(); ++id) frame.values[id] = graph.values[id].initializer;
  }
};

GraphNetwork::GraphNetwork(Graph graph) : program_(std::make_unique<Program>(std::move(graph))) {}
GraphNetwork::~GraphNetwork() = default;

at::Tensor GraphNetwork::forward(const Batch& batch, const ForwardContext& context) {
  program_->only_output();
  return std::move(forward_all(batch.inputs, context).front());
}

std::vector<at::Tensor> GraphNetwork::forward_all(const std::vector<at::Tensor>& inputs,
                                                  const ForwardContext& context) {
  Program& p = *program_;
  p.take_inputs(inputs);
  p.enter(context);
  const Node* running = nullptr;
  try {
    p.mask_weights();
    for (std::size_t i = 0; i < p.steps.size(); ++i) {
      running = p.steps[i].node;
      p.run_step(i);
    }
    p.unmask_weights();
  } catch (const c10::OutOfMemoryError&) {
    p.clear();
    throw;
  } catch (const c10::Error& error) {
    p.clear();
    const std::string where = running == nullptr ? "[model.dropout] masks of weights"
                                                 : "node \"" + running->name + "\" (" + running->op + ")";
    throw PluginError(where + ": " + error.what_without_backtrace());
  } catch (...) {
    p.clear();
    throw;
  }
  return p.take_outputs();
}

std::vector<at::Tensor> GraphNetwork::run_node(std::size_t node, std::span<const at::Tensor> inputs,
                                               const ForwardContext& context) {
  Program& p = *program_;
  const Node& its = p.graph.nodes.at(node);
  if (inputs.size() != its.inputs.size())
    throw PluginError("node \"" + its.name + "\" (" + its.op + ") takes " +
                      std::to_string(its.inputs.size()) + " inputs, got " + std::to_string(inputs.size()));
  p.enter(context);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (its.inputs[i] != no_value) p.frame[its.inputs[i]] = inputs[i];
  std::vector<at::Tensor> outputs;
  try {
    p.steps[node].call(p.frame);
    for (const ValueId id : its.outputs) outputs.push_back(id == no_value ? at::Tensor() : p.frame[id]);
  } catch (...) {
    p.clear();
    throw;
  }
  p.clear();
  return outputs;
}

bool GraphNetwork::runs_by_nodes(const ForwardContext& context) const {
  const DropoutService& dropout = program_->frame.dropout;
  const bool computes = dropout.masks != nullptr || dropout.fuses != nullptr || dropout.evaluates != nullptr;
  return program_->taps.empty() &&
         (!computes || dropout.plan->rate(static_cast<std::int64_t>(context.step)) == 0.0);
}

bool GraphNetwork::has_dropout() const {
  return program_->frame.dropout.plan != nullptr;
}

std::vector<std::size_t> GraphNetwork::dropped_nodes(const ForwardContext& context) const {
  const DropoutService& dropout = program_->frame.dropout;
  std::vector<std::size_t> found;
  if (dropout.plan == nullptr || dropout.plan->rate(static_cast<std::int64_t>(context.step)) == 0.0)
    return found;
  const DropoutPlaces& places = dropout.plan->places();
  for (std::size_t i = 0; i < program_->steps.size(); ++i) {
    const Program::Step& step = program_->steps[i];
    const bool site = step.site && context.drops() && places.sites[*step.site].active;
    const bool cell = step.cell && dropout.carries != nullptr && places.cells[*step.cell].active;
    if (site || cell) found.push_back(i);
  }
  return found;
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
  const Shape& shape = program_->only_output().shape;
  return {shape.begin() + 1, shape.end()};
}

void GraphNetwork::to(at::Device device) {
  c10::NoGradGuard no_grad;
  for (const GraphValue& value : program_->graph.values)
    if (value.initializer.defined()) value.initializer.set_data(value.initializer.to(device));
}

void GraphNetwork::to_doubles() {
  const c10::NoGradGuard no_grad;
  Graph graph = program_->graph;
  for (GraphValue& value : graph.values) {
    if (c10::isFloatingType(value.dtype)) value.dtype = at::kDouble;
    if (value.initializer.defined() && value.initializer.is_floating_point())
      value.initializer.set_data(value.initializer.to(at::kDouble));
  }
  constexpr std::int64_t onnx_float = 1, onnx_double = 11;
  for (Node& node : graph.nodes)
    if (node.op == "Cast" && node.integer("to", 0) == onnx_float) node.attributes["to"] = onnx_double;
  program_ = std::make_unique<Program>(std::move(graph));
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

namespace {

bool same_places(const DropoutPlaces& a, const DropoutPlaces& b) {
  const auto same = [](const auto& these, const auto& those) {
    return std::ranges::equal(these, those,
                              [](const auto& one, const auto& other) { return one.id == other.id; });
  };
  return same(a.sites, b.sites) && same(a.weights, b.weights) && same(a.linears, b.linears) &&
         same(a.cells, b.cells);
}

}  // namespace

DropoutPlaces GraphNetwork::dropout_places() const {
  return program_->places;
}

void GraphNetwork::set_dropout(const DropoutPlan* plan, std::uint64_t seed) {
  DropoutService& service = program_->frame.dropout;
  if (plan == nullptr) {
    service = {};
    return;
  }
  const DropoutPlaces& places = plan->places();
  if (!same_places(places, program_->places))
    throw PluginError("the dropout was opened for the places of another network");
  const auto streams = [&](const auto& places) {
    std::vector<RandomStream> result;
    result.reserve(places.size());
    for (const auto& place : places) result.emplace_back(seed, "dropout/" + place.id);
    return result;
  };
  Dropout& dropout = plan->dropout();
  service = {.plan = plan,
             .masks = dropout.masks_weights(),
             .evaluates = dropout.evaluates_linears(),
             .fuses = dropout.fuses_linears(),
             .carries = dropout.carries_states(),
             .sites = streams(places.sites),
             .weights = streams(places.weights),
             .linears = streams(places.linears),
             .cells = streams(places.cells)};
}

bool GraphNetwork::add_tap(const void* owner, NetworkTap tap) {
  auto& taps = program_->taps;
  const auto own = std::ranges::find(taps, owner, &std::pair<const void*, NetworkTap>::first);
  if (own != taps.end())
    own->second = std::move(tap);
  else
    taps.emplace_back(owner, std::move(tap));
  return true;
}

void GraphNetwork::remove_tap(const void* owner) {
  std::erase_if(program_->taps, [&](const auto& each) { return each.first == owner; });
}

std::unique_ptr<Network> GraphNetwork::twin() const {
  Graph graph = program_->graph;
  for (GraphValue& value : graph.values)
    if (value.initializer.defined()) value.initializer = value.initializer.variable_data();
  return std::make_unique<GraphNetwork>(std::move(graph));
}

const Graph* GraphNetwork::graph() const {
  return &program_->graph;
}

}  // namespace trainyard
