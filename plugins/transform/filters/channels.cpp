#include "channels.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

namespace filters {

std::vector<std::int64_t> constant_integers(const Graph& graph, const Node& node, std::size_t input,
                                            std::vector<std::int64_t> fallback) {
  if (input >= node.inputs.size() || node.inputs[input] == no_value) return fallback;
  const at::Tensor& tensor = graph.values[static_cast<std::size_t>(node.inputs[input])].initializer;
  if (!tensor.defined() || !at::isIntegralType(tensor.scalar_type(), false)) return fallback;
  const at::Tensor flat = tensor.to(at::kLong).contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

Padding padding_of(const Graph& graph, const Node& node, int axis) {
  const auto rank =
      static_cast<std::int64_t>(graph.values[static_cast<std::size_t>(node.inputs[0])].shape.size());
  const std::vector<std::int64_t> pads = constant_integers(graph, node, 1, {});
  std::vector<std::int64_t> all(static_cast<std::size_t>(rank));
  std::iota(all.begin(), all.end(), 0);
  const std::vector<std::int64_t> axes = constant_integers(graph, node, 3, all);
  for (std::size_t i = 0; i < axes.size() && axes.size() * 2 == pads.size(); ++i)
    if ((axes[i] + rank) % rank == axis) return {pads[i], pads[axes.size() + i]};
  return {};
}

std::optional<Taken> taken_of(const Graph& graph, const Node& node, const Track& read) {
  const auto rank =
      static_cast<std::int64_t>(graph.values[static_cast<std::size_t>(node.inputs[0])].shape.size());
  const std::vector<std::int64_t> starts = constant_integers(graph, node, 1, {}),
                                  ends = constant_integers(graph, node, 2, {});
  std::vector<std::int64_t> all(starts.size());
  std::iota(all.begin(), all.end(), 0);
  const std::vector<std::int64_t> axes = constant_integers(graph, node, 3, all),
                                  steps = constant_integers(graph, node, 4,
                                                            std::vector<std::int64_t>(starts.size(), 1));
  const auto size = static_cast<std::int64_t>(read.channels.size());
  Taken taken{0, size};
  for (std::size_t i = 0; i < starts.size(); ++i) {
    if ((axes[i] + rank) % rank != read.axis) continue;
    const auto place = [&](std::int64_t at) {
      return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
    };
    if (steps[i] != 1 || starts.size() != 1) return std::nullopt;
    taken = {place(starts[i]), std::max(place(starts[i]), place(ends[i]))};
  }
  return taken;
}

/// One pass over the nodes of a graph.
class Reading {
 public:
  Reading(const Graph& graph, Channels& to) : graph_(graph), to_(to) {
    to_.tracks_.resize(graph.values.size());
  }

  void read() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      number_ = i;
      node_ = &graph_.nodes[i];
      const auto found = rules().find(node_->op);
      if (found == rules().end())
        hold("reads all of them");
      else
        found->second(*this);
    }
    for (const ValueId output : graph_.outputs)
      if (output != no_value) hold(track(output), "they are the network's output");
    hold_what_others_read();
  }

 private:
  using Rule = std::function<void(Reading&)>;

  static const std::map<std::string, Rule, std::less<>>& rules() {
    static const std::map<std::string, Rule, std::less<>> table = [] {
      std::map<std::string, Rule, std::less<>> all = {
          {"Conv", &Reading::convolution},
          {"ConvTranspose", &Reading::convolution_transpose},
          {"Gemm", &Reading::gemm},
          {"MatMul", &Reading::product},
          {"BatchNormalization", &Reading::normalization},
          {"InstanceNormalization", &Reading::normalization},
          {"Concat", &Reading::concat},
          {"Slice", &Reading::slice},
          {"Split", &Reading::split},
          {"Pad", &Reading::pad},
          {"Flatten", &Reading::view},
          {"Reshape", &Reading::view},
          {"Squeeze", &Reading::view},
          {"Unsqueeze", &Reading::view},
          {"Transpose", &Reading::transpose},
          {"Softmax", &Reading::softmax},
          {"LogSoftmax", &Reading::softmax},
      };
      for (const char* op :
           {"Relu", "Gelu", "Sigmoid", "Tanh", "Elu", "LeakyRelu", "Clip", "Identity", "Cast", "Dropout",
            "Selu", "Mish", "HardSigmoid", "Softplus", "Softsign", "HardSwish", "Abs", "Neg"})
        all.emplace(op, &Reading::same);
      for (const char* op : {"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"})
        all.emplace(op, &Reading::pool);
      for (const char* op : {"Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "PRelu"})
        all.emplace(op, &Reading::elementwise);
      return all;
    }();
    return table;
  }

  // Values

  const GraphValue& value(ValueId id) const { return graph_.values[static_cast<std::size_t>(id)]; }
  Track& track(ValueId id) { return to_.tracks_[static_cast<std::size_t>(id)]; }
  bool has(std::size_t input) const {
    return input < node_->inputs.size() && node_->inputs[input] != no_value;
  }
  Track& input(std::size_t i = 0) { return track(node_->inputs[i]); }
  Track& output(std::size_t i = 0) { return track(node_->outputs[i]); }
  const std::vector<std::int64_t>& shape(std::size_t i = 0) const { return value(node_->inputs[i]).shape; }

  // Channels

  std::vector<Channel> fresh(std::int64_t count) {
    std::vector<Channel> made(static_cast<std::size_t>(count));
    std::iota(made.begin(), made.end(), static_cast<Channel>(to_.parents_.size()));
    to_.parents_.insert(to_.parents_.end(), made.begin(), made.end());
    return made;
  }

  void unite(Channel a, Channel b) {
    a = to_.root(a), b = to_.root(b);
    if (a == b) return;
    to_.parents_[static_cast<std::size_t>(std::max(a, b))] = std::min(a, b);
    const auto moved = to_.obstacles_.extract(std::max(a, b));
    if (!moved.empty()) to_.obstacles_.emplace(std::min(a, b), moved.mapped());
  }
  void unite(const std::vector<Channel>& a, const std::vector<Channel>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) unite(a[i], b[i]);
  }

  void hold(const Track& held, const std::string& why) {
    for (const Channel channel : held.channels) to_.obstacles_.emplace(to_.root(channel), why);
  }
  /// Keeps all that the node reads; what it makes has no channels.
  void hold(const std::string& why) {
    for (const ValueId id : node_->inputs)
      if (id != no_value) hold(track(id), node_->name + " (" + node_->op + ") " + why);
  }

  /// Says that a dimension of a tensor of the graph goes by these channels, as this node reads it. One that several nodes
  /// read does so for all.
  void add_slice(ValueId tensor, int axis, const std::vector<Channel>& channels) {
    readers_[{tensor, axis}].insert(number_);
    for (const Slice& each : to_.slices_)
      if (each.value == tensor && each.axis == axis) return unite(each.channels, channels);
    to_.slices_.push_back({tensor, axis, channels});
  }

  static bool among(const std::vector<ValueId>& all, ValueId id) {
    return std::ranges::find(all, id) != all.end();
  }

  /// Keeps the channels that a dimension of a tensor goes by where another node reads it as a whole.
  void hold_what_others_read() {
    for (const Slice& slice : to_.slices_) {
      const std::set<std::size_t>& knowing = readers_[{slice.value, slice.axis}];
      const Track whole{slice.axis, slice.channels};
      for (std::size_t i = 0; i < graph_.nodes.size(); ++i)
        if (!knowing.contains(i) && among(graph_.nodes[i].inputs, slice.value))
          hold(whole, graph_.nodes[i].name + " (" + graph_.nodes[i].op + ") reads all of " +
                          value(slice.value).name);
      if (among(graph_.outputs, slice.value))
        hold(whole, value(slice.value).name + " is an output of the network");
    }
  }
  bool is_constant(std::size_t i) const { return has(i) && value(node_->inputs[i]).initializer.defined(); }

  void add_layer(std::vector<Channel> outputs, std::vector<Channel> inputs) {
    to_.layers_.push_back({number_, node_->name, node_->inputs[1], std::move(outputs), std::move(inputs)});
  }

  // Layers

  void convolution() {
    const std::int64_t groups = node_->integer("group", 1);
    if (!is_constant(1)) return hold("has weights that other nodes compute");
    if (input() && input().axis != 1) hold("reads another dimension");
    const std::vector<std::int64_t>& weight = shape(1);
    std::vector<Channel> made = fresh(weight[0]), read;
    if (input().axis == 1) read = input().channels;
    if (groups > 1 && (groups != shape(0)[1] || weight[0] % groups != 0)) {
      const std::string why = "is a convolution in groups of several channels";
      hold(why);
      hold(Track{1, made}, node_->name + " (Conv) " + why);
      read.clear();
    }
    add_slice(node_->inputs[1], 0, made);
    if (groups == 1 && !read.empty()) add_slice(node_->inputs[1], 1, read);
    if (groups > 1) {  // depthwise: each channel makes its own
      if (read.empty()) hold(Track{1, made}, node_->name + " reads channels that cannot be cut");
      for (std::size_t i = 0; i < made.size() && !read.empty(); ++i)
        unite(made[i], read[i * read.size() / made.size()]);
    }
    bias(made);
    output() = {1, made};
    add_layer(std::move(made), groups == 1 ? std::move(read) : std::vector<Channel>());
  }

  void bias(const std::vector<Channel>& made) {
    if (is_constant(2)) return add_slice(node_->inputs[2], 0, made);
    if (has(2)) hold(Track{1, made}, node_->name + " has a bias that other nodes compute");
  }

  void convolution_transpose() {
    if (!is_constant(1) || node_->integer("group", 1) != 1) return hold("is a convolution in groups");
    if (input() && input().axis != 1) hold("reads another dimension");
    std::vector<Channel> made = fresh(shape(1)[1]);
    if (input().axis == 1) add_slice(node_->inputs[1], 0, input().channels);
    add_slice(node_->inputs[1], 1, made);
    bias(made);
    output() = {1, std::move(made)};
  }

  void gemm() {
    if (!is_constant(1) || node_->integer("transA", 0) != 0)
      return hold("has weights that other nodes compute, or a transposed input");
    const int rows = node_->integer("transB", 0) != 0 ? 0 : 1;
    dense(rows, 1 - rows);
    if (has(2)) broadcast(2, output());
  }

  void product() {
    if (!is_constant(1) || shape(1).size() != 2) return hold("multiplies by what is not a matrix of weights");
    dense(1, 0);
  }

  /// A layer whose input and output have their channels last.
  void dense(int of_outputs, int of_inputs) {
    const int last = static_cast<int>(shape().size()) - 1;
    std::vector<Channel> read;
    if (input() && input().axis != last) return hold("multiplies another dimension");
    if (input()) read = input().channels;
    std::vector<Channel> made = fresh(shape(1)[static_cast<std::size_t>(of_outputs)]);
    add_slice(node_->inputs[1], of_outputs, made);
    if (!read.empty()) add_slice(node_->inputs[1], of_inputs, read);
    output() = {last, made};
    add_layer(std::move(made), std::move(read));
  }

  // What has no layer

  void same() {
    const Track read = input();  // a copy: the output may lie beside it
    output() = read;
    for (std::size_t i = 1; i < node_->outputs.size(); ++i)
      if (node_->outputs[i] != no_value) output(i) = read;
  }

  void pool() {
    if (input() && input().axis != 1) return hold("reads another dimension");
    same();
  }

  void normalization() {
    if (input() && input().axis != 1) return hold("normalises another dimension");
    for (std::size_t i = 1; i < node_->inputs.size() && input(); ++i)
      if (is_constant(i))
        add_slice(node_->inputs[i], 0, input().channels);
      else
        return hold("has parameters that other nodes compute");
    same();
  }

  /// Goes by the channels of `whole` in the dimension of input `i` that lies there.
  void broadcast(std::size_t i, const Track& whole) {
    const auto rank = static_cast<int>(value(node_->outputs[0]).shape.size()),
               own = static_cast<int>(shape(i).size());
    const int axis = whole.axis - (rank - own);
    if (axis < 0 || shape(i)[static_cast<std::size_t>(axis)] == 1) return;
    if (!is_constant(i) || shape(i)[static_cast<std::size_t>(axis)] != std::ssize(whole.channels))
      return hold(whole, node_->name + " (" + node_->op + ") adds what has no channels");
    add_slice(node_->inputs[i], axis, whole.channels);
  }

  void elementwise() {
    const auto rank = static_cast<int>(value(node_->outputs[0]).shape.size());
    Track whole;
    for (std::size_t i = 0; i < node_->inputs.size(); ++i) {
      const Track& read = input(i);
      if (!read || (whole && whole.channels.size() > read.channels.size())) continue;
      whole = {read.axis + rank - static_cast<int>(shape(i).size()), read.channels};
    }
    if (!whole) return;
    for (std::size_t i = 0; i < node_->inputs.size(); ++i) {
      const Track& read = input(i);
      if (!read) {
        broadcast(i, whole);
        continue;
      }
      if (read.axis + rank - static_cast<int>(shape(i).size()) != whole.axis ||
          read.channels.size() != whole.channels.size())
        return hold("combines channels of several dimensions");
      unite(read.channels, whole.channels);
    }
    output() = whole;
  }

  void concat() {
    const auto rank = static_cast<std::int64_t>(shape().size());
    const int axis = static_cast<int>((node_->integer("axis", 0) + rank) % rank);
    Track whole;
    for (std::size_t i = 0; i < node_->inputs.size(); ++i)
      if (input(i)) whole.axis = input(i).axis;
    if (!whole) return;
    for (std::size_t i = 0; i < node_->inputs.size(); ++i)
      if (input(i) && input(i).axis != whole.axis) return hold("puts several dimensions beside each other");
    for (std::size_t i = 0; i < node_->inputs.size(); ++i) {
      Track part = input(i);
      if (!part) {
        part = {whole.axis, fresh(shape(i)[static_cast<std::size_t>(whole.axis)])};
        hold(part, node_->name + " takes them from what has no channels");
        input(i) = part;
      }
      if (whole.axis == axis || i == 0)
        whole.channels.insert(whole.channels.end(), part.channels.begin(), part.channels.end());
      else
        unite(whole.channels, part.channels);
    }
    output() = std::move(whole);
  }

  void slice() {
    const Track read = input();
    if (!read) return;
    const std::optional<Taken> taken = taken_of(graph_, *node_, read);
    if (!taken) return hold("takes channels apart");
    output() = {read.axis, {read.channels.begin() + taken->first, read.channels.begin() + taken->last}};
  }

  void split() {
    const Track read = input();
    const auto rank = static_cast<std::int64_t>(shape().size());
    const bool apart = read && (node_->integer("axis", 0) + rank) % rank == read.axis;
    std::size_t first = 0;
    for (const ValueId id : node_->outputs) {
      if (id == no_value && apart) return hold("takes channels apart of which some are not used");
      if (id == no_value || !read) continue;
      track(id) = read;
      if (!apart) continue;
      const auto size = static_cast<std::size_t>(value(id).shape[static_cast<std::size_t>(read.axis)]);
      track(id).channels.assign(read.channels.begin() + static_cast<std::ptrdiff_t>(first),
                                read.channels.begin() + static_cast<std::ptrdiff_t>(first + size));
      first += size;
    }
  }

  void pad() {
    const Track read = input();
    if (!read) return;
    const Padding added = padding_of(graph_, *node_, read.axis);
    if (added.before == 0 && added.after == 0) return same();
    if (added.before < 0 || added.after < 0 || has(2) || node_->text("mode", "constant") != "constant")
      return hold("pads channels with other things than zeros");
    Track made{read.axis, fresh(added.before)};  // channels of zeros
    made.channels.insert(made.channels.end(), read.channels.begin(), read.channels.end());
    const std::vector<Channel> behind = fresh(added.after);
    made.channels.insert(made.channels.end(), behind.begin(), behind.end());
    output() = std::move(made);
  }

  /// Follows a dimension into another shape: as it is, or with all behind it folded in.
  void view() {
    const Track read = input();
    if (!read) return;
    const std::vector<std::int64_t>&from = shape(), &to = value(node_->outputs[0]).shape;
    const auto axis = static_cast<std::size_t>(read.axis);
    const auto product = [](const std::vector<std::int64_t>& of, std::size_t begin, std::size_t end) {
      return std::accumulate(of.begin() + static_cast<std::ptrdiff_t>(begin),
                             of.begin() + static_cast<std::ptrdiff_t>(end), std::int64_t{1},
                             std::multiplies<>());
    };
    const std::int64_t before = product(from, 0, axis), behind = product(from, axis + 1, from.size());
    for (std::size_t place = 0; place < to.size(); ++place) {
      if (product(to, 0, place) != before) continue;
      if (to[place] == from[axis] && product(to, place + 1, to.size()) == behind) {
        output() = {static_cast<int>(place), read.channels};
        return;
      }
      if (place + 1 != to.size() || to[place] != from[axis] * behind) continue;
      Track made{static_cast<int>(place), {}};
      for (const Channel channel : read.channels)
        made.channels.insert(made.channels.end(), static_cast<std::size_t>(behind), channel);
      output() = std::move(made);
      return;
    }
    hold("folds them with other dimensions");
  }

  void transpose() {
    const Track read = input();
    if (!read) return;
    std::vector<std::int64_t> perm(shape().size());
    std::iota(perm.rbegin(), perm.rend(), 0);
    perm = node_->integers("perm", perm);
    output() = {static_cast<int>(std::ranges::find(perm, read.axis) - perm.begin()), read.channels};
  }

  void softmax() {
    const auto rank = static_cast<std::int64_t>(shape().size());
    if (input() && (node_->integer("axis", -1) + rank) % rank == input().axis)
      return hold("normalises over them");
    same();
  }

  const Graph& graph_;
  Channels& to_;
  std::size_t number_ = 0;
  const Node* node_ = nullptr;
  std::map<std::pair<ValueId, int>, std::set<std::size_t>>
      readers_;  ///< nodes that a dimension of a tensor is cut for
};

Channels::Channels(const Graph& graph) {
  Reading(graph, *this).read();
}

Channel Channels::root(Channel channel) const {
  while (parents_[static_cast<std::size_t>(channel)] != channel) {
    Channel& parent = parents_[static_cast<std::size_t>(channel)];
    channel = parent = parents_[static_cast<std::size_t>(parent)];
  }
  return channel;
}

const std::string& Channels::obstacle(Channel channel) const {
  static const std::string none;
  const auto found = obstacles_.find(root(channel));
  return found == obstacles_.end() ? none : found->second;
}

}  // namespace filters
