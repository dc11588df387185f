#include "array.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <trainyard/error.hpp>
#include <trainyard/graph/inputs.hpp>

namespace hfta {
namespace {

bool is_statistic(const Graph& graph, ValueId id) {
  return std::ranges::any_of(graph.nodes, [&](const Node& node) {
    return node.op == "BatchNormalization" && (node.inputs[3] == id || node.inputs[4] == id);
  });
}

/// Whether nodes follow one another to the last, and none of them gives to a leaf or is listened to.
bool is_chain(torch::autograd::Node* node) {
  while (node != nullptr) {
    torch::autograd::Node* next = nullptr;
    for (const torch::autograd::Edge& edge : node->next_edges())
      if (edge.is_valid() && std::exchange(next, edge.function.get()) != nullptr) return false;
    if (node->num_inputs() != 1 || node->num_outputs() > 1 || !node->pre_hooks().empty() ||
        !node->post_hooks().empty() || !node->tensor_pre_hooks().empty() ||
        !node->retains_grad_hooks().empty() ||
        dynamic_cast<torch::autograd::AccumulateGrad*>(node) != nullptr)
      return false;
    node = next;
  }
  return true;
}

/// losses.backward(root). A chain, as linear layers make it, is called node by node: the engine of autograd takes longer
/// than a small network.
void go_back(const at::Tensor& losses, const at::Tensor& root) {
  torch::autograd::Node* node = losses.grad_fn().get();
  if (!is_chain(node)) return torch::autograd::backward({losses}, {root});
  const at::NoGradGuard untracked;
  for (at::Tensor gradient = root; node != nullptr && gradient.defined();) {
    node->will_release_variables();
    torch::autograd::variable_list found = (*node)({std::move(gradient)});
    node->release_variables();
    gradient = found.empty() ? at::Tensor() : std::move(found.front());
    node = found.empty() ? nullptr : node->next_edge(0).function.get();
  }
}

at::Tensor as_row(const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> parts;
  for (const NamedTensor& each : parameters) parts.push_back(each.tensor.detach().reshape(-1));
  return at::cat(parts);
}

}  // namespace

Array::Array(std::vector<std::unique_ptr<Network>> networks, Passes passes, Planned::Log log)
    : log_(std::move(log)) {
  const at::NoGradGuard untracked;
  for (std::unique_ptr<Network>& network : networks) {
    auto* const own = dynamic_cast<GraphNetwork*>(network.get());
    if (own == nullptr)
      throw ConfigError(
          "the model has no graph, and models are fused node by node: take one that has, or the "
          "executor \"eager\"");
    network.release();  // NOLINT(bugprone-unused-return-value): `own` is it
    networks_.emplace_back(own);
  }
  graph_ = networks_.front()->graph();
  if (graph_->outputs.size() != 1) throw ConfigError("the graph of the model has several outputs");
  std::vector<at::Tensor> rows;
  for (const auto& network : networks_) rows.push_back(as_row(network->parameters()));
  std::int64_t first = 0;
  for (std::size_t id = 0; id < graph_->values.size(); ++id) {
    const GraphValue& value = graph_->values[id];
    if (value.trainable) {
      places_.push_back({value.name, value.initializer.sizes().vec(), first, value.initializer.numel()});
      of_places_.push_back(static_cast<ValueId>(id));
      first += value.initializer.numel();
      continue;
    }
    if (!value.initializer.defined()) continue;
    std::vector<at::Tensor> all;
    for (const auto& network : networks_) all.push_back(network->graph()->values[id].initializer);
    if (is_statistic(*graph_, static_cast<ValueId>(id))) {
      statistics_.push_back({value.name, at::stack(all)});
      of_statistics_.push_back(static_cast<ValueId>(id));
    } else if (!std::ranges::all_of(all,
                                    [&](const at::Tensor& each) { return at::equal(each, all.front()); })) {
      throw ConfigError("the constant " + value.name +
                        " of the model is another for another seed: its members "
                        "share all but parameters and running statistics");
    }
  }
  if (places_.empty()) throw ConfigError("the model has no parameters");
  weights_ = at::stack(rows);
  if (!networks_.front()->has_dropout()) networks_.resize(1);
  for (const auto& network : networks_) own_.push_back(network.get());
  find_relus();
  has_plan_ = is_compiled(passes);
  bind();
}

bool Array::is_compiled(Passes passes) const {
  const bool can_be = weights_.is_cpu() && weights_.scalar_type() == at::kFloat;
  if (passes == Passes::compiled && !can_be)
    throw ConfigError(
        "executor.passes = \"compiled\": plans are of single precision, on the processor; take \"eager\"");
  return passes == Passes::compiled || (passes == Passes::automatic && can_be && Planned::pays(*graph_));
}

/// A ReLU that lies between two nodes of which one takes it over.
void Array::find_relus() {
  const std::vector<Node>& nodes = graph_->nodes;
  has_relu_.assign(nodes.size(), false);
  is_taken_.assign(nodes.size(), false);
  const auto only_reader = [&](ValueId value) -> std::optional<std::size_t> {
    std::optional<std::size_t> found;
    if (value == graph_->outputs.front()) return std::nullopt;
    for (std::size_t n = 0; n < nodes.size(); ++n)
      for (const ValueId id : nodes[n].inputs)
        if (id == value && std::exchange(found, n)) return std::nullopt;
    return found;
  };
  for (std::size_t ahead = 0; ahead < nodes.size(); ++ahead) {
    const std::optional<std::size_t> reader = only_reader(nodes[ahead].outputs.front());
    if (!reader || is_taken_[ahead]) continue;
    const bool gives = nodes[*reader].op == "Relu" && is_ahead_of_relu(*graph_, nodes[ahead]);
    const bool takes = nodes[ahead].op == "Relu" && is_behind_relu(*graph_, nodes[*reader]);
    if (gives) has_relu_[ahead] = is_taken_[*reader] = true;
    if (takes) has_relu_[*reader] = is_taken_[ahead] = true;
  }
}

/// Has everything that refers to the members' tensors refer to those that there are now.
void Array::bind() {
  const at::NoGradGuard untracked;
  gradients_ = at::zeros_like(weights_);
  leaves_.clear();
  gathered_.clear();
  frame_.assign(graph_->values.size(), {});
  for (std::size_t id = 0; id < frame_.size(); ++id)
    if (graph_->values[id].initializer.defined()) frame_[id].tensor = graph_->values[id].initializer;
  const auto view = [&](const at::Tensor& matrix, const RowRange& place) {
    std::vector<std::int64_t> shape = place.shape;
    shape.insert(shape.begin(), matrix.size(0));
    return matrix.detach().narrow(1, place.first, place.count).view(shape);
  };
  for (std::size_t i = 0; i < places_.size(); ++i) {
    at::Tensor leaf = view(weights_, places_[i]);
    leaf.set_requires_grad(true);
    leaves_.push_back(leaf);
    gathered_.push_back({view(gradients_, places_[i])});
    frame_[static_cast<std::size_t>(of_places_[i])] = {leaf, Layout::members, {}, &gathered_.back()};
  }
  for (std::size_t i = 0; i < statistics_.size(); ++i)
    frame_[static_cast<std::size_t>(of_statistics_[i])] = {statistics_[i].tensor, Layout::members};
  // What they began with goes: plain nodes get their weights from here.
  for (std::size_t n = 0; n < networks_.size(); ++n) {
    std::vector<NamedTensor> tensors = parameters(static_cast<std::int64_t>(n));
    std::vector<NamedTensor> buffers_now = networks_[n]->buffers();
    for (NamedTensor& buffer : buffers_now)
      for (const NamedTensor& own : buffers(static_cast<std::int64_t>(n)))
        if (own.name == buffer.name) buffer.tensor = own.tensor;
    for (NamedTensor& each : tensors) each.tensor.set_requires_grad(true);
    tensors.insert(tensors.end(), buffers_now.begin(), buffers_now.end());
    networks_[n]->adopt(tensors);
  }
  planned_.reset();
  if (!has_plan_) return;
  std::vector<std::vector<NamedTensor>> members;
  for (std::int64_t b = 0; b < this->members(); ++b) {
    members.push_back(parameters(b));
    std::ranges::move(buffers(b), std::back_inserter(members.back()));
  }
  planned_ = std::make_unique<Planned>(*graph_, members, weights_, gradients_, own_, log_);
}

at::Tensor Array::forward(const std::vector<at::Tensor>& inputs, const ForwardContext& pass) {
  for (GraphNetwork* const own : own_)
    if (!own->runs_by_nodes(pass))
      throw ConfigError(
          "[model.dropout] computes layers or masks weights, which are fused here: take one that "
          "drops activations, or the executor \"eager\"");
  check_inputs(*graph_, inputs);
  if (planned_) return planned_->forward(inputs, pass);
  std::vector<Fused> frame = frame_;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    frame[static_cast<std::size_t>(graph_->inputs[i])] = {inputs[i], Layout::shared};
  for (std::size_t number = 0; number < graph_->nodes.size(); ++number) {
    const Node& node = graph_->nodes[number];
    if (is_taken_[number]) {
      frame[static_cast<std::size_t>(node.outputs.front())] =
          frame[static_cast<std::size_t>(node.inputs.front())];
      continue;
    }
    std::vector<Fused> given;
    for (const ValueId id : node.inputs)
      given.push_back(id == no_value ? Fused{} : frame[static_cast<std::size_t>(id)]);
    const std::vector<Fused> outputs =
        run_fused({*graph_, node, number, members(), own_, pass, has_relu_[number]}, given);
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != no_value) frame[static_cast<std::size_t>(node.outputs[i])] = outputs.at(i);
  }
  return as_members(frame[static_cast<std::size_t>(graph_->outputs.front())], members());
}

/// Rules and plans put gradients where they belong, autograd gives the others to the leaves.
void Array::backward(const at::Tensor& losses, double share, bool adds) {
  for (Gathered& each : gathered_) each.has_some = adds;
  if (planned_) planned_->adds(adds);
  go_back(losses, at::full({members()}, share, losses.options()));
  if (planned_) return;
  const at::NoGradGuard untracked;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    Gathered& own = gathered_[i];
    at::Tensor& given = leaves_[i].mutable_grad();
    if (given.defined())
      own.has_some ? own.gradient.add_(given) : own.gradient.copy_(given);
    else if (!own.has_some)
      own.gradient.zero_();
    given.reset();
  }
}

std::vector<NamedTensor> Array::row(const at::Tensor& matrix, std::int64_t member) const {
  std::vector<NamedTensor> result;
  const at::Tensor all = matrix.detach().select(0, member);
  for (const RowRange& place : places_)
    result.push_back({place.name, all.narrow(0, place.first, place.count).view(place.shape)});
  return result;
}

std::vector<NamedTensor> Array::parameters(std::int64_t member) const {
  return row(weights_, member);
}

std::vector<NamedTensor> Array::buffers(std::int64_t member) const {
  std::vector<NamedTensor> result;
  for (const NamedTensor& each : statistics_) result.push_back({each.name, each.tensor.select(0, member)});
  return result;
}

void Array::take(at::Tensor weights, std::vector<NamedTensor> statistics) {
  weights_ = std::move(weights);
  statistics_ = std::move(statistics);
  if (networks_.size() > 1) networks_.resize(static_cast<std::size_t>(members()));
  own_.resize(networks_.size());
  bind();
}

void Array::keep(const std::vector<std::int64_t>& rows) {
  const at::NoGradGuard untracked;
  const at::Tensor index = at::tensor(rows, at::kLong).to(weights_.device());
  std::vector<NamedTensor> statistics = statistics_;
  for (NamedTensor& each : statistics) each.tensor = each.tensor.index_select(0, index);
  if (networks_.size() > 1) {
    std::vector<std::unique_ptr<GraphNetwork>> kept;
    for (const std::int64_t row : rows) kept.push_back(std::move(networks_[static_cast<std::size_t>(row)]));
    networks_ = std::move(kept);
    graph_ = networks_.front()->graph();
    own_.clear();
    for (const auto& network : networks_) own_.push_back(network.get());
  }
  take(weights_.index_select(0, index), std::move(statistics));
}

std::string Array::text() const {
  if (planned_) return planned_->text();
  std::string names;
  for (const Node& node : graph_->nodes)
    if (!has_rule(*graph_, node, networks_.front()->has_dropout()))
      names += (names.empty() ? "" : ", ") + node.name;
  return names.empty() ? names : "run member by member: " + names;
}

}  // namespace hfta
