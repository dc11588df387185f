#include "cut.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <trainyard/error.hpp>

namespace filters {
namespace {

/// Returns the places of a list of channels that stay.
std::vector<std::int64_t> places(const Channels& channels, const std::vector<Channel>& list,
                                 const Gone& gone) {
  std::vector<std::int64_t> kept;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (!gone.contains(channels.root(list[i]))) kept.push_back(static_cast<std::int64_t>(i));
  return kept;
}

class Cutter {
 public:
  Cutter(Graph graph, const Channels& channels, const Gone& gone)
      : graph_(std::move(graph)), channels_(channels), gone_(gone) {}

  Graph cut() {
    for (const Slice& slice : channels_.slices()) shorten(slice);
    for (Node& node : graph_.nodes) adapt(node);
    graph_.infer_shapes();
    return std::move(graph_);
  }

 private:
  std::vector<std::int64_t> kept(const std::vector<Channel>& list) const {
    return places(channels_, list, gone_);
  }
  std::int64_t count(const std::vector<Channel>& list) const { return std::ssize(kept(list)); }

  void shorten(const Slice& slice) {
    GraphValue& value = graph_.values[static_cast<std::size_t>(slice.value)];
    const std::vector<std::int64_t> left = kept(slice.channels);
    if (left.size() == slice.channels.size()) return;
    if (left.empty()) throw ConfigError("nothing would be left of " + value.name + ": keep a channel of it");
    value.initializer =
        value.initializer.detach().index_select(slice.axis, at::tensor(left, at::kLong)).contiguous();
  }

  /// Sets what a node says of the number of its channels.
  void adapt(Node& node) {
    if (node.op == "Conv") {
      const Track& read = channels_.track(node.inputs[0]);
      const std::int64_t groups = node.integer("group", 1);
      if (groups > 1 && groups == std::ssize(read.channels)) node.attributes["group"] = count(read.channels);
      return;
    }
    if (node.op == "Reshape") return reshape(node);
    const Track& read = channels_.track(node.inputs.empty() ? 0 : node.inputs[0]);
    if (!read || node.inputs.empty()) return;
    const Track& made = channels_.track(node.outputs[0]);
    if (node.op == "Slice" && made.channels.size() != read.channels.size()) slice(node, read);
    if (node.op == "Split") split(node, read);
    if (node.op == "Pad" && made.channels.size() != read.channels.size()) pad(node, read, made);
  }

  void reshape(Node& node) {
    const Track& made = channels_.track(node.outputs[0]);
    std::vector<std::int64_t> shape = constant_integers(graph_, node, 1, {});
    if (!made || shape.size() <= static_cast<std::size_t>(made.axis)) return;
    std::int64_t& dimension = shape[static_cast<std::size_t>(made.axis)];
    if (dimension > 0) dimension = count(made.channels);
    set(node, 1, shape);
  }

  void slice(Node& node, const Track& read) {
    const Taken taken = taken_of(graph_, node, read).value();
    const auto begin = read.channels.begin();
    const std::int64_t start = count({begin, begin + taken.first});
    set(node, 1, {start});
    set(node, 2, {start + count({begin + taken.first, begin + taken.last})});
  }

  void split(Node& node, const Track& read) {
    const auto rank =
        static_cast<std::int64_t>(graph_.values[static_cast<std::size_t>(node.inputs[0])].shape.size());
    if ((node.integer("axis", 0) + rank) % rank != read.axis) return;
    std::vector<std::int64_t> sizes;
    for (const ValueId id : node.outputs) sizes.push_back(count(channels_.track(id).channels));
    node.attributes.erase("num_outputs");
    if (node.inputs.size() < 2) node.inputs.push_back(no_value);
    set(node, 1, sizes);
  }

  void pad(Node& node, const Track& read, const Track& made) {
    const Padding was = padding_of(graph_, node, read.axis);
    const auto begin = made.channels.begin();
    const std::int64_t before = count({begin, begin + was.before}),
                       after = count({made.channels.end() - was.after, made.channels.end()});
    const auto rank =
        static_cast<std::int64_t>(graph_.values[static_cast<std::size_t>(node.inputs[0])].shape.size());
    std::vector<std::int64_t> pads = constant_integers(graph_, node, 1, {});
    std::vector<std::int64_t> axes;
    for (std::size_t i = 0; i < pads.size() / 2; ++i) axes.push_back(static_cast<std::int64_t>(i));
    axes = constant_integers(graph_, node, 3, axes);
    for (std::size_t i = 0; i < axes.size(); ++i)
      if ((axes[i] + rank) % rank == read.axis) pads[i] = before, pads[axes.size() + i] = after;
    set(node, 1, pads);
  }

  /// Gives a node a constant of its own.
  void set(Node& node, std::size_t input, const std::vector<std::int64_t>& numbers) {
    std::string name = node.name + ".kept" + std::to_string(input);
    while (graph_.find_value(name) != no_value) name += "_";
    at::Tensor tensor = at::tensor(numbers, at::kLong);
    node.inputs[input] =
        graph_.add_value({.name = std::move(name), .shape = {}, .initializer = std::move(tensor)});
  }

  Graph graph_;
  const Channels& channels_;
  const Gone& gone_;
};

const Layer& layer_of(const Channels& channels, const std::string& name) {
  for (const Layer& layer : channels.layers())
    if (layer.name == name) return layer;
  throw ConfigError("the network has no linear or convolutional layer \"" + name +
                    "\" (trainyard model show lists them)");
}

}  // namespace

Gone gone_by(const Channels& channels, const Kept& kept) {
  std::map<Channel, std::string> gone;
  for (const auto& [name, left] : kept) {
    const Layer& layer = layer_of(channels, name);
    if (std::ssize(layer.outputs) != left.of)
      throw ConfigError("\"" + name + "\" has " + std::to_string(layer.outputs.size()) +
                        " outputs, and was written for " + std::to_string(left.of));
    for (std::size_t i = 0; i < layer.outputs.size(); ++i)
      if (!std::ranges::binary_search(left.kept, static_cast<std::int64_t>(i)))
        gone.emplace(channels.root(layer.outputs[i]), name + "[" + std::to_string(i) + "]");
  }
  for (const auto& [channel, name] : gone)
    if (const std::string& why = channels.obstacle(channel); !why.empty())
      throw ConfigError(name + " cannot be cut: " + why);
  for (const auto& [name, left] : kept)
    for (const std::int64_t i : left.kept) {
      const auto found =
          gone.find(channels.root(layer_of(channels, name).outputs[static_cast<std::size_t>(i)]));
      if (found != gone.end())
        throw ConfigError(name + "[" + std::to_string(i) + "] is kept, and " + found->second +
                          ", which goes together with it, is not");
    }
  Gone roots;
  for (const auto& [channel, name] : gone) roots.insert(channel);
  return roots;
}

Kept kept_after(const Channels& channels, const Gone& gone) {
  Kept kept;
  for (const Layer& layer : channels.layers()) {
    std::vector<std::int64_t> left = places(channels, layer.outputs, gone);
    if (left.size() < layer.outputs.size())
      kept.emplace(layer.name, KeptOutputs{std::ssize(layer.outputs), std::move(left)});
  }
  return kept;
}

Graph cut(Graph graph, const Channels& channels, const Gone& gone) {
  return Cutter(std::move(graph), channels, gone).cut();
}

void mask(const Graph& graph, const Channels& channels, const Gone& gone,
          const std::vector<NamedTensor>& tensors) {
  const at::NoGradGuard untracked;
  std::map<std::string_view, at::Tensor> by_name;
  for (const NamedTensor& each : tensors) by_name.emplace(each.name, each.tensor);
  for (const Slice& slice : channels.slices()) {
    const auto found = by_name.find(graph.values[static_cast<std::size_t>(slice.value)].name);
    if (found == by_name.end()) continue;
    for (std::size_t i = 0; i < slice.channels.size(); ++i)
      if (gone.contains(channels.root(slice.channels[i])))
        found->second.select(slice.axis, static_cast<std::int64_t>(i)).zero_();
  }
}

std::vector<NamedTensor> cut_tensors(const Graph& graph, const Channels& channels, const Gone& gone,
                                     std::vector<NamedTensor> tensors) {
  for (NamedTensor& each : tensors)
    for (const Slice& slice : channels.slices()) {
      if (graph.values[static_cast<std::size_t>(slice.value)].name != each.name) continue;
      const at::Tensor left = at::tensor(places(channels, slice.channels, gone), at::kLong);
      each.tensor = each.tensor.detach().index_select(slice.axis, left.to(each.tensor.device())).contiguous();
    }
  return tensors;
}

std::int64_t parameters_after(const Graph& graph, const Channels& channels, const Gone& gone) {
  std::map<ValueId, double> shares;
  for (const Slice& slice : channels.slices())
    shares.try_emplace(slice.value, 1.0).first->second *=
        static_cast<double>(places(channels, slice.channels, gone).size()) /
        static_cast<double>(slice.channels.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const GraphValue& value = graph.values[i];
    if (!value.trainable) continue;
    const auto found = shares.find(static_cast<ValueId>(i));
    sum += static_cast<double>(value.initializer.numel()) * (found == shares.end() ? 1.0 : found->second);
  }
  return std::llround(sum);
}

}  // namespace filters
