#include "passes.hpp"

#include <algorithm>
#include <map>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <trainyard/error.hpp>
#include <trainyard/forward_context.hpp>
#include <trainyard/graph/graph.hpp>

namespace pruning {
namespace {

using Inputs = std::map<std::string, at::Tensor, std::less<>>;

/// Runs a batch as an evaluation does, and notes what the layers are given.
at::Tensor forward(Network& network, const Batch& batch, Inputs& inputs) {
  network.add_tap(&inputs, [&](const NodeActivity& node) {
    if (!node.inputs.empty() && node.inputs.front().defined())
      inputs[std::string(node.node)] = node.inputs.front().detach();
  });
  at::Tensor output;
  try {
    output = network.forward(batch, {});
  } catch (...) {
    network.remove_tap(&inputs);
    throw;
  }
  network.remove_tap(&inputs);
  return output;
}

/// Takes the gradients away that backward left, and returns them in the order of the parameters.
std::vector<at::Tensor> take_gradients(const Network& network) {
  std::vector<at::Tensor> gradients;
  for (const NamedTensor& each : network.parameters()) {
    at::Tensor parameter = each.tensor;
    gradients.push_back(parameter.grad());
    parameter.mutable_grad().reset();
  }
  return gradients;
}

/// Sums over the outputs with weights of about one: whatever changes an output changes it.
at::Tensor any_change(const at::Tensor& output) {
  at::Tensor weights = at::empty(output.sizes(), at::kFloat);
  fill_uniform(weights, RandomStream(0, "propagate"), 0.5, 1.5);
  return (output * weights.to(output.options())).sum();
}

/// Sets the bias, and what follows of a normalisation, of outputs whose weights are all zero. Returns whether there were any.
bool silence_constants(const Graph& graph, const std::map<std::string, at::Tensor>& parameters,
                       const PrunedLayer& layer) {
  const at::Tensor dead = layer.matrix.flatten(1).eq(0).all(1);
  const Node& node = graph.nodes[layer.node];
  const bool is_output = std::ranges::find(graph.outputs, node.outputs[0]) != graph.outputs.end();
  if (is_output || !dead.any().item<bool>()) return false;
  std::vector<ValueId> of_outputs;
  if (node.inputs.size() > 2) of_outputs.push_back(node.inputs[2]);
  for (const Node& other : graph.nodes)
    if (other.op == "BatchNormalization" && other.inputs[0] == node.outputs[0])
      of_outputs.insert(of_outputs.end(), {other.inputs[1], other.inputs[2]});
  bool changed = false;
  for (const ValueId id : of_outputs) {
    if (id == no_value) continue;
    const auto found = parameters.find(graph.values[static_cast<std::size_t>(id)].name);
    if (found == parameters.end() || found->second.dim() != 1 || found->second.size(0) != dead.size(0))
      continue;
    at::Tensor values = found->second.detach();
    changed = changed || values.masked_select(dead).any().item<bool>();
    values.masked_fill_(dead, 0);
  }
  return changed;
}

}  // namespace

std::vector<LayerScores> scores_of(const Scorer& scorer, Network& network,
                                   const std::vector<PrunedLayer>& layers, const SampleSet& set,
                                   const Loss& loss, Host& host, const std::function<bool()>& stopping) {
  const Scorer::Reads reads = scorer.reads();
  const Graph& graph = *network.graph();
  std::vector<at::Tensor> folded(layers.size());
  std::vector<LayerScores> all(layers.size());
  std::map<std::string, std::size_t> places;  // of parameters, in the network's order
  for (const NamedTensor& each : network.parameters()) places.emplace(each.name, places.size());
  for (const Batch& batch : set.batches) {
    if (!reads.inputs && !reads.gradients) break;
    if (stopping()) return {};
    Inputs inputs;
    std::vector<at::Tensor> gradients;
    const at::AutoGradMode tracked(reads.gradients);
    const at::Tensor output = forward(network, batch, inputs);
    if (reads.gradients) {
      (loss.forward(output, batch) * (batch.weight / set.weight)).backward();
      gradients = take_gradients(network);
    }
    const at::NoGradGuard untracked;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const PrunedLayer& layer = layers[i];
      const Node& node = graph.nodes[layer.node];
      LayerPass pass;
      if (reads.inputs) pass.inputs = patches(node, layer.weight, inputs.at(layer.name), batch.size());
      if (reads.inputs) all[i].positions = pass.inputs.size(3);
      if (reads.gradients) {
        const std::size_t place = places.at(graph.values[static_cast<std::size_t>(node.inputs[1])].name);
        const at::Tensor& gradient = gradients[place];
        pass.gradient = gradient.defined() ? as_matrix(node, gradient) : at::zeros_like(layer.matrix);
      }
      folded[i] = scorer.fold(layer.scored(), pass, folded[i]);
    }
  }
  const at::NoGradGuard untracked;
  for (std::size_t i = 0; i < layers.size(); ++i)
    all[i].scores = scorer.scores(layers[i].scored(), folded[i], host.random("scores/" + layers[i].name))
                        .to(at::kCPU, at::kDouble);
  return all;
}

std::int64_t propagate(Network& network, const std::vector<PrunedLayer>& layers, const SampleSet& set) {
  std::map<std::string, at::Tensor> parameters;
  for (const NamedTensor& each : network.parameters()) parameters.emplace(each.name, each.tensor);
  constexpr int most_rounds = 4;
  for (int round = 0; round < most_rounds; ++round) {
    std::vector<at::Tensor> sums;
    for (const Batch& batch : set.batches) {
      const at::AutoGradMode tracked(true);
      any_change(network.forward(batch, {})).backward();
      const std::vector<at::Tensor> gradients = take_gradients(network);
      sums.resize(gradients.size());
      for (std::size_t i = 0; i < sums.size(); ++i) {
        if (!gradients[i].defined()) continue;
        const at::Tensor size = gradients[i].detach().abs();
        sums[i] = sums[i].defined() ? sums[i] + size : size;
      }
    }
    const at::NoGradGuard untracked;
    const std::vector<NamedTensor> own = network.parameters();
    for (std::size_t i = 0; i < sums.size(); ++i)
      if (sums[i].defined()) own[i].tensor.detach().masked_fill_(sums[i].eq(0), 0);
    bool again = false;
    for (const PrunedLayer& layer : layers)
      again = silence_constants(*network.graph(), parameters, layer) || again;
    if (!again) break;
  }
  return nonzeros(network);
}

std::int64_t nonzeros(const Network& network) {
  std::int64_t count = 0;
  for (const NamedTensor& each : network.parameters())
    count += each.tensor.detach().count_nonzero().item<std::int64_t>();
  return count;
}

}  // namespace pruning
