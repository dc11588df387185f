#include "layers.hpp"

#include <algorithm>
#include <map>

#include <ATen/ops/constant_pad_nd.h>

#include <trainyard/error.hpp>
#include <trainyard/graph/graph.hpp>
#include <trainyard/pattern.hpp>

namespace pruning {
namespace {

using Numbers = std::vector<std::int64_t>;

/// Pads an image as ONNX says of a Conv.
at::Tensor padded(const Node& node, const at::Tensor& x, const Numbers& kernel, const Numbers& strides,
                  const Numbers& dilations) {
  const std::size_t dimensions = kernel.size();
  Numbers pads = node.integers("pads", Numbers(2 * dimensions, 0));
  const std::string automatic = node.text("auto_pad", "NOTSET");
  if (automatic != "NOTSET") std::ranges::fill(pads, 0);
  for (std::size_t i = 0; i < dimensions && automatic.starts_with("SAME"); ++i) {
    const std::int64_t size = x.size(static_cast<std::int64_t>(2 + i)),
                       out = (size + strides[i] - 1) / strides[i];
    const std::int64_t total =
        std::max<std::int64_t>(0, (out - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - size);
    pads[i] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
    pads[dimensions + i] = total - pads[i];
  }
  Numbers pairs;  // from the last dimension on
  for (std::size_t i = dimensions; i-- > 0;) pairs.insert(pairs.end(), {pads[i], pads[dimensions + i]});
  return at::constant_pad_nd(x, pairs);
}

at::Tensor windows(const Node& node, const at::Tensor& weight, const at::Tensor& input) {
  const Numbers kernel{weight.sizes().begin() + 2, weight.sizes().end()};
  const std::size_t dimensions = kernel.size();
  const Numbers strides = node.integers("strides", Numbers(dimensions, 1)),
                dilations = node.integers("dilations", Numbers(dimensions, 1));
  at::Tensor x = padded(node, input, kernel, strides, dilations);
  for (std::size_t i = 0; i < dimensions; ++i) {
    x = x.unfold(static_cast<std::int64_t>(2 + i), (kernel[i] - 1) * dilations[i] + 1, strides[i]);
    x = x.slice(-1, 0, std::nullopt, dilations[i]);  // of the window, every so many
  }
  // [samples, channels, positions..., taps...]
  return x.flatten(-static_cast<std::int64_t>(dimensions)).flatten(2, -2).transpose(2, 3);
}

std::map<ValueId, int> readers(const Graph& graph) {
  std::map<ValueId, int> count;
  for (const Node& node : graph.nodes)
    for (const ValueId id : node.inputs) ++count[id];
  return count;
}

}  // namespace

at::Tensor as_matrix(const Node& node, const at::Tensor& weight) {
  if (node.op == "Conv") return weight.flatten(2);
  const bool rows = node.op == "Gemm" && node.integer("transB", 0) != 0;
  return (rows ? weight : weight.t()).unsqueeze(2);
}

at::Tensor patches(const Node& node, const at::Tensor& weight, const at::Tensor& input,
                   std::int64_t samples) {
  if (node.op == "Conv") return windows(node, weight, input);
  return input.reshape({samples, -1, input.size(-1)}).transpose(1, 2).unsqueeze(2);
}

std::vector<PrunedLayer> layers_of(const Network& network, const filters::Channels& channels,
                                   const std::vector<std::string>& patterns) {
  const Graph& graph = *network.graph();
  std::map<std::string, at::Tensor> parameters;
  for (const NamedTensor& each : network.parameters()) parameters.emplace(each.name, each.tensor);
  const std::map<ValueId, int> read = readers(graph);
  std::vector<PrunedLayer> layers;
  std::vector<bool> used(patterns.size());
  for (const filters::Layer& each : channels.layers()) {
    const auto weight = parameters.find(graph.values[static_cast<std::size_t>(each.weight)].name);
    if (weight == parameters.end() || read.at(each.weight) > 1) continue;
    bool chosen = false;
    for (std::size_t i = 0; i < patterns.size(); ++i)
      if (fits(patterns[i], each.name)) chosen = used[i] = true;
    if (!chosen) continue;
    const Node& node = graph.nodes[each.node];
    const at::Tensor plain = weight->second.detach();
    layers.push_back({each.name, each.node, as_matrix(node, plain), plain,
                      node.op == "Conv" ? node.integer("group", 1) : 1, &each});
  }
  for (std::size_t i = 0; i < patterns.size(); ++i)
    if (!used[i])
      throw ConfigError(
          "layers: \"" + patterns[i] +
          "\" fits no linear or convolutional layer with a parameter of its own (trainyard model show lists "
          "them)");
  return layers;
}

}  // namespace pruning
