#include "advice.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "lib/printed.hpp"
#include "machine.hpp"
#include "runnable.hpp"

namespace ops {
namespace {

using namespace trainyard;

/// Values that have the same channels, as sets that grow together.
class Groups {
 public:
  explicit Groups(std::size_t count) : parent_(count), fixed_(count, false) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }
  std::size_t of(ValueId id) { return root(static_cast<std::size_t>(id)); }
  void join(ValueId a, ValueId b) {
    const std::size_t one = of(a), other = of(b);
    parent_[one] = other;
    fixed_[other] = fixed_[other] || fixed_[one];
  }
  void fix(ValueId id) { fixed_[of(id)] = true; }
  bool fixed(ValueId id) { return fixed_[of(id)]; }

 private:
  std::size_t root(std::size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  std::vector<std::size_t> parent_;
  std::vector<bool> fixed_;
};

bool follows(const Node& node) {
  static const std::set<std::string, std::less<>> ops = {
      "Relu",    "LeakyRelu",   "HardSwish",         "HardSigmoid",
      "Elu",     "Gelu",        "Sigmoid",           "Tanh",
      "Mish",    "Softplus",    "Dropout",           "Identity",
      "MaxPool", "AveragePool", "GlobalAveragePool", "BatchNormalization"};
  return ops.contains(node.op);
}

std::int64_t channels_of(const Graph& graph, ValueId id) {
  const auto& shape = shape_of(graph, id);
  return shape.size() < 2 ? 0 : shape[1];
}

bool is_depthwise(const Graph& graph, const Node& node) {
  return node.op == "Conv" && node.integer("group", 1) > 1 &&
         node.integer("group", 1) == channels_of(graph, node.inputs[0]) &&
         channels_of(graph, node.outputs[0]) == node.integer("group", 1);
}

/// Multiples of 4, 8, 16 and 32 beside a width, and the next numbers: a quarter more at most, and a tenth less.
std::set<std::int64_t> others(std::int64_t channels) {
  std::set<std::int64_t> found = {channels + 1, channels + 2};
  for (const std::int64_t each : {4, 8, 16, 32}) {
    const std::int64_t below = (channels - 1) / each * each, above = (channels / each + 1) * each;
    if (10 * below >= 9 * channels) found.insert(below);
    if (4 * above <= 5 * channels + 3) found.insert(above);
  }
  return found;
}

Operator with_channels(Operator point, bool makes, bool reads, bool passes, std::int64_t channels,
                       std::int64_t each) {
  if (point.depthwise()) {
    point.in = point.out = point.groups = channels;
    return point;
  }
  if (makes || passes) point.out = channels;
  if (reads || passes) point.in = channels * each;
  return point;
}

/// Points of a width's nodes in a training pass, with other channels.
std::vector<Operator> points_of(const Width& width, const NetworkTimes& times, std::int64_t channels) {
  std::vector<Operator> points;
  const auto add = [&](std::size_t node, bool makes, bool reads, bool passes, std::int64_t each) {
    const NodeTimes& of = times.nodes[node];
    if (!of.point) return;  // views and dropouts, of which there is none among the sweeps
    points.push_back(with_channels(in_training(of), makes, reads, passes, channels, each));
  };
  const auto reads = [&](std::size_t node) {
    return std::find_if(width.readers.begin(), width.readers.end(),
                        [&](const Width::Reader& r) { return r.node == node; });
  };
  for (const std::size_t node : width.makers) {
    const auto also = reads(node);  // a layer between equal widths
    add(node, true, also != width.readers.end(), false, also != width.readers.end() ? also->each : 1);
  }
  for (const std::size_t node : width.followers) add(node, false, false, true, 1);
  for (const Width::Reader& each : width.readers)
    if (std::find(width.makers.begin(), width.makers.end(), each.node) == width.makers.end())
      add(each.node, false, true, false, each.each);
  return points;
}

/// Convolutions and linear layers in a training pass.
std::vector<Operator> layers_of(const NetworkTimes& times) {
  std::vector<Operator> layers;
  for (const NodeTimes& each : times.nodes) {
    if (!each.point || (each.point->op != "conv" && each.point->op != "linear")) continue;
    layers.push_back(in_training(each));
  }
  return layers;
}

}  // namespace

std::vector<Width> widths_of(const Graph& graph) {
  Groups groups(graph.values.size());
  for (const ValueId id : graph.inputs) groups.fix(id);
  for (const ValueId id : graph.outputs) groups.fix(id);
  std::map<ValueId, std::int64_t> per_channel;  // features that each channel became
  const auto each_of = [&](ValueId id) {
    const auto found = per_channel.find(id);
    return found == per_channel.end() ? std::int64_t{1} : found->second;
  };
  const auto is_layer = [](const Node& node) {
    return (node.op == "Conv" && node.integer("group", 1) == 1) || node.op == "Gemm";
  };
  for (const Node& node : graph.nodes) {
    if (is_layer(node)) continue;
    const ValueId in = node.inputs.front(), out = node.outputs.front();
    if (follows(node) || is_depthwise(graph, node)) {
      groups.join(in, out);
      per_channel[out] = each_of(in);
    } else if (node.op == "Flatten" && node.integer("axis", 1) == 1 && channels_of(graph, in) > 0 &&
               channels_of(graph, out) % channels_of(graph, in) == 0) {
      groups.join(in, out);
      per_channel[out] = each_of(in) * (channels_of(graph, out) / channels_of(graph, in));
    } else if ((node.op == "Add" || node.op == "Mul") &&
               channels_of(graph, node.inputs[1]) == channels_of(graph, in) &&
               !graph.values[static_cast<std::size_t>(node.inputs[1])].initializer.defined()) {
      groups.join(in, out);
      groups.join(node.inputs[1], out);
    } else {
      for (const ValueId id : node.inputs)
        if (id != no_value) groups.fix(id);
      for (const ValueId id : node.outputs) groups.fix(id);
    }
  }
  std::map<std::size_t, Width> found;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const ValueId in = node.inputs.front(), out = node.outputs.front();
    if (is_layer(node)) {
      if (!groups.fixed(out)) {
        found[groups.of(out)].makers.push_back(i);
        found[groups.of(out)].channels = channels_of(graph, out);
      }
      if (!groups.fixed(in)) found[groups.of(in)].readers.push_back({i, each_of(in)});
    } else if (!groups.fixed(out)) {
      found[groups.of(out)].followers.push_back(i);
    }
  }
  std::vector<Width> widths;
  for (auto& [group, width] : found)
    if (!width.makers.empty()) widths.push_back(std::move(width));
  return widths;
}

std::string text_of(const Advice& each) {
  const char* what = each.kind == Advice::Kind::free ? "cost no more: " : "";
  return lib::printed("%s: %ld channels in place of %ld %s%.1f %% of a training pass saved",
                      each.layers.c_str(), static_cast<long>(each.channels),
                      static_cast<long>(each.width.channels), what, 100.0 * each.gain);
}

Advised advise(const Graph& graph, const NetworkTimes& times, const Rounds& rounds,
               const RandomStream& random, const std::function<bool()>& stop) {
  const std::vector<Width> widths = widths_of(graph);
  std::map<Operator, std::size_t> places;  // each point is timed once
  std::vector<std::function<void()>> calls;
  const auto time = [&](const Operator& point) {
    if (places.emplace(point, calls.size()).second) calls.push_back(prepare(point).call);
  };
  for (const Width& width : widths) {
    for (const Operator& point : points_of(width, times, width.channels)) time(point);
    for (const std::int64_t channels : others(width.channels))
      for (const Operator& point : points_of(width, times, channels)) time(point);
  }
  const std::vector<Operator> layers = layers_of(times);
  for (Operator point : layers) {
    time(point);
    point.type = "bf16";
    time(point);
  }
  const std::vector<Timing> timings = time_calls(calls, rounds, process_clock(), random, stop);
  if (timings.empty()) return {};
  const auto seconds_of = [&](const Operator& point) { return timings[places.at(point)].least; };
  const auto total = [&](const Width& width, std::int64_t channels) {
    double seconds = 0.0;
    for (const Operator& point : points_of(width, times, channels)) seconds += seconds_of(point);
    return seconds;
  };

  Advised advised{.widths = widths.size(), .noisy = noisy(timings)};
  for (Operator point : layers) {
    const double single = seconds_of(point);
    point.type = "bf16";
    advised.bf16_gain += (single - seconds_of(point)) / times.sum.training;
  }
  for (const Width& width : widths) {
    std::map<Advice::Kind, Advice> best;
    const double before = total(width, width.channels);
    for (const std::int64_t channels : others(width.channels)) {
      const double after = total(width, channels), gain = (before - after) / times.sum.training;
      const auto kind = channels < width.channels ? Advice::Kind::narrower
                        : gain > 0.02             ? Advice::Kind::faster
                                                  : Advice::Kind::free;
      if (kind == Advice::Kind::narrower && gain < 0.05) continue;
      if (kind == Advice::Kind::free && after > 1.01 * before) continue;
      const auto found = best.find(kind);
      // Of those that cost no more the widest, of the others the fastest.
      if (found != best.end() && kind != Advice::Kind::free && found->second.after <= after) continue;
      best[kind] = {kind, width, channels, "", before, after, gain};
    }
    if (best.contains(Advice::Kind::faster)) best.erase(Advice::Kind::free);
    for (auto& [kind, each] : best) {
      for (const std::size_t node : width.makers)
        each.layers += (each.layers.empty() ? "" : ", ") + graph.nodes[node].name;
      advised.advice.push_back(std::move(each));
    }
  }
  std::stable_sort(advised.advice.begin(), advised.advice.end(),
                   [](const Advice& a, const Advice& b) { return a.gain > b.gain; });
  return advised;
}

}  // namespace ops
