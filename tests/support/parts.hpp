// A graph against its parts, run one after another.
#pragma once

#include <iterator>
#include <list>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <trainyard/graph/cut.hpp>
#include <trainyard/graph/network.hpp>

namespace trainyard::test {

struct Differences {
  bool exact = true;  ///< outputs, buffers and gradients, those of the inputs too, are the same bits
  bool outputs_exact = true;
  bool close = true;
  std::size_t parts = 0;
  std::size_t passed_through = 0;  ///< values that are an input and an output of a part
  std::size_t shared_weights = 0;  ///< gradients of a weight beyond those of its first part

  void compare(const at::Tensor& a, const at::Tensor& b, bool output) {
    const bool same = a.defined() == b.defined() && (!a.defined() || at::equal(a, b));
    exact = exact && same;
    outputs_exact = outputs_exact && (same || !output);
    close = close && a.defined() == b.defined() && (!a.defined() || at::allclose(a, b, 1e-4, 1e-5));
  }
};

/// The graph on tensors of its own.
inline Graph copy_of(const Graph& graph) {
  Graph copy = graph;
  for (GraphValue& value : copy.values)
    if (value.initializer.defined()) value.initializer = value.initializer.detach().clone();
  return copy;
}

inline std::vector<at::Tensor> leaves(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& each : tensors)
    result.push_back(each.is_floating_point() ? each.detach().requires_grad_() : each);
  return result;
}

/// Gradients of the inputs and the parameters, for those of the outputs; as autograd gives them, since in a
/// leaf's .grad they may lie in memory in another way, and sums over them be rounded differently.
struct Gradients {
  std::vector<at::Tensor> inputs;
  std::map<std::string, at::Tensor> parameters;

  Gradients(const GraphNetwork& network, const std::vector<at::Tensor>& given,
            const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& of_outputs) {
    std::vector<at::Tensor> from, seeds, to;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i].requires_grad() && of_outputs[i].defined()) {
        from.push_back(outputs[i]);
        seeds.push_back(of_outputs[i]);
      }
    for (const at::Tensor& each : given)
      if (each.requires_grad()) to.push_back(each);
    for (const NamedTensor& each : network.parameters()) to.push_back(each.tensor);
    inputs.resize(given.size());
    if (from.empty()) return;
    const std::vector<at::Tensor> found = torch::autograd::grad(from, to, seeds, std::nullopt, false, true);
    std::size_t next = 0;
    for (std::size_t i = 0; i < given.size(); ++i)
      if (given[i].requires_grad()) inputs[i] = found[next++];
    for (const NamedTensor& each : network.parameters()) parameters[each.name] = found[next++];
  }
};

/// A training pass of the whole, then of the parts, each with its backward.
inline Differences compare_with_parts(const Graph& graph, std::span<const int> part_of_node,
                                      const std::vector<at::Tensor>& given) {
  const ForwardContext pass{.training = true};
  Differences found;
  GraphNetwork whole(copy_of(graph));
  const std::vector<at::Tensor> inputs = leaves(given);
  const std::vector<at::Tensor> outputs = whole.forward_all(inputs, pass);
  std::vector<at::Tensor> seeds;
  for (const at::Tensor& output : outputs)
    seeds.push_back(output.is_floating_point() ? at::randn_like(output.detach()) : at::Tensor());
  const Gradients expected(whole, inputs, outputs, seeds);

  std::list<GraphNetwork> parts;
  for (Graph& part : cut(copy_of(graph), part_of_node)) parts.emplace_back(std::move(part));
  found.parts = parts.size();
  std::vector<std::vector<at::Tensor>> taken, given_on;
  for (GraphNetwork& part : parts) {
    taken.push_back(leaves(taken.empty() ? given : given_on.back()));
    given_on.push_back(part.forward_all(taken.back(), pass));
    for (const at::Tensor& output : given_on.back())
      for (const at::Tensor& input : taken.back()) found.passed_through += output.is_same(input);
  }
  std::vector<at::Tensor> on = seeds;  // gradients of what a part gives
  std::map<std::string, at::Tensor> of_parameters;
  for (std::size_t i = taken.size(); i-- > 0;) {
    Gradients here(*std::next(parts.begin(), static_cast<std::ptrdiff_t>(i)), taken[i], given_on[i], on);
    for (const auto& [name, gradient] : here.parameters) {
      at::Tensor& sum = of_parameters[name];
      found.shared_weights += sum.defined() && gradient.defined();
      if (gradient.defined()) sum = sum.defined() ? sum + gradient : gradient;
    }
    on = std::move(here.inputs);
  }

  for (std::size_t i = 0; i < outputs.size(); ++i) found.compare(outputs[i], given_on.back()[i], true);
  for (std::size_t i = 0; i < inputs.size(); ++i) found.compare(expected.inputs[i], on[i], false);
  for (const auto& [name, gradient] : expected.parameters)
    found.compare(gradient, of_parameters[name], false);
  std::map<std::string, at::Tensor> buffers;
  for (const GraphNetwork& part : parts)
    for (const NamedTensor& each : part.buffers()) buffers[each.name] = each.tensor;
  for (const NamedTensor& each : whole.buffers()) found.compare(each.tensor, buffers[each.name], true);
  return found;
}

}  // namespace trainyard::test
