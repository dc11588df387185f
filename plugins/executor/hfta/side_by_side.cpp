#include "side_by_side.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "../compiled/memory.hpp"
#include "../compiled/narrow_groups.hpp"

namespace hfta {
namespace {

/// A value of one network, as the array has it.
struct Members {
  std::vector<ValueId> each;  ///< one where it is the same for all, else of each member, once they are apart
  ValueId together = no_value;  ///< their channels one behind the other
};

class Beside {
 public:
  Beside(const Graph& one, const std::vector<std::vector<NamedTensor>>& members, bool draws)
      : one_(one), members_(members), draws_(draws), of_(one.values.size()) {
    for (const ValueId id : one.inputs) {
      const GraphValue& value = value_of(id);
      made_.graph.inputs.push_back(add({.name = value.name, .shape = value.shape, .dtype = value.dtype}));
      known(id).each = {made_.graph.inputs.back()};
    }
    for (std::size_t id = 0; id < one.values.size(); ++id)
      if (one.values[id].initializer.defined()) add_initializer(static_cast<ValueId>(id));
  }

  SideBySide make() {
    for (std::size_t number = 0; number < one_.nodes.size(); ++number) add_node(number);
    const std::vector<ValueId> outputs = each(one_.outputs.front());
    Node all = new_node("Concat", "outputs of members", outputs, {{"axis", std::int64_t{0}}});
    add_outputs(all, {value_of(one_.outputs.front())}, "all members/");
    made_.graph.outputs = {all.outputs.front()};
    put(std::move(all));
    made_.graph.infer_shapes();
    return std::move(made_);
  }

 private:
  const GraphValue& value_of(ValueId id) const { return one_.values[static_cast<std::size_t>(id)]; }
  Members& known(ValueId id) { return of_[static_cast<std::size_t>(id)]; }
  ValueId add(GraphValue value) { return made_.graph.add_value(std::move(value)); }
  std::size_t count() const { return members_.size(); }
  static std::string name_of(std::size_t member, const std::string& name) {
    return "member " + std::to_string(member) + "/" + name;
  }

  void add_initializer(ValueId id) {
    const GraphValue& value = value_of(id);
    for (std::size_t b = 0; b < count(); ++b) {
      const auto own = std::ranges::find(members_[b], value.name, &NamedTensor::name);
      if (own == members_[b].end()) break;
      known(id).each.push_back(add({.name = name_of(b, value.name),
                                    .shape = {},
                                    .initializer = own->tensor,
                                    .trainable = value.trainable}));
    }
    if (known(id).each.empty())
      known(id).each = {add({.name = value.name, .shape = {}, .initializer = value.initializer})};
  }

  static Node new_node(std::string op, std::string name, std::vector<ValueId> inputs,
                       decltype(Node::attributes) attributes) {
    return {.op = std::move(op),
            .name = std::move(name),
            .inputs = std::move(inputs),
            .outputs = {},
            .attributes = std::move(attributes)};
  }
  void add_outputs(Node& node, const std::vector<GraphValue>& like, const std::string& prefix) {
    for (const GraphValue& each : like)
      node.outputs.push_back(add({.name = prefix + each.name, .shape = {}, .dtype = each.dtype}));
  }
  void put(Node node, std::optional<SideBySide::Own> own = std::nullopt) {
    made_.graph.nodes.push_back(std::move(node));
    made_.own.push_back(own);
  }

  bool is_shared(ValueId id) { return id == no_value || (known(id).each.size() == 1 && count() > 1); }
  bool is_together(ValueId id) { return known(id).together != no_value; }
  bool is_own_parameter(ValueId id) { return value_of(id).trainable; }

  /// Of each member; those whose channels lie together are split.
  const std::vector<ValueId>& each(ValueId id) {
    Members& value = known(id);
    if (!value.each.empty()) return value.each;
    const std::string& name = value_of(id).name;
    Node split = new_node("Split", name + " of each", {value.together},
                          {{"axis", std::int64_t{1}}, {"num_outputs", static_cast<std::int64_t>(count())}});
    for (std::size_t b = 0; b < count(); ++b) add_outputs(split, {value_of(id)}, name_of(b, ""));
    value.each = split.outputs;
    put(std::move(split));
    return value.each;
  }
  ValueId of_member(ValueId id, std::size_t member) {
    if (id == no_value) return no_value;
    const std::vector<ValueId>& all = each(id);
    return all.size() == 1 ? all.front() : all[member];
  }

  /// A parameter of all members, one behind the other.
  ValueId joined(ValueId parameter) {
    Members& value = known(parameter);
    if (value.together != no_value) return value.together;
    Node join =
        new_node("Concat", value_of(parameter).name + " of all", value.each, {{"axis", std::int64_t{0}}});
    add_outputs(join, {value_of(parameter)}, "members/");
    value.together = join.outputs.front();
    put(std::move(join));
    return value.together;
  }

  void add_node(std::size_t number) {
    const Node& node = one_.nodes[number];
    if (is_same_for_all(node)) return add_shared(number);
    if (is_wide(node)) return add_wide(number, known(node.inputs[0]).each.front(), 1);
    if (is_in_groups(node))
      return add_wide(number, known(node.inputs[0]).together, static_cast<std::int64_t>(count()));
    if (keeps_channels(node)) return add_together(number, {known(node.inputs[0]).together});
    for (std::size_t b = 0; b < count(); ++b) {
      Node own = node;
      own.name = name_of(b, node.name);
      for (ValueId& id : own.inputs) id = of_member(id, b);
      for (ValueId& id : own.outputs) {
        if (id == no_value) continue;
        const ValueId made =
            add({.name = name_of(b, value_of(id).name), .shape = {}, .dtype = value_of(id).dtype});
        known(id).each.push_back(made);
        id = made;
      }
      put(std::move(own), SideBySide::Own{b, number});
    }
  }

  bool is_same_for_all(const Node& node) {
    return !(draws_ && node.op == "Dropout") &&
           std::ranges::all_of(node.inputs, [&](ValueId id) { return is_shared(id); });
  }
  void add_shared(std::size_t number) {
    Node node = one_.nodes[number];
    for (ValueId& id : node.inputs)
      if (id != no_value) id = known(id).each.front();
    for (ValueId& id : node.outputs) {
      if (id == no_value) continue;
      known(id).each = {add({.name = value_of(id).name, .shape = {}, .dtype = value_of(id).dtype})};
      id = known(id).each.front();
    }
    put(std::move(node), SideBySide::Own{0, number});
  }

  bool has_own_parameters(const Node& node) {
    return is_own_parameter(node.inputs[1]) &&
           (node.inputs.size() < 3 || node.inputs[2] == no_value || is_own_parameter(node.inputs[2]));
  }
  /// Whether a convolution of what all members see is one of all their channels: of a member's some lanes would be zeros.
  bool is_wide(const Node& node) {
    return node.op == "Conv" && count() > 1 && node.integer("group", 1) == 1 && is_shared(node.inputs[0]) &&
           has_own_parameters(node) && value_of(node.inputs[1]).shape.size() == 4 &&
           value_of(node.inputs[1]).shape[0] % compiled::channel_block() != 0;
  }
  /// Whether it is one in groups: plans have a kernel for few channels.
  bool is_in_groups(const Node& node) {
    return node.op == "Conv" && is_together(node.inputs[0]) && has_own_parameters(node) &&
           compiled::narrow_groups(one_, node, static_cast<std::int64_t>(count())).has_value();
  }
  /// Whether channels lie together, and each channel of the output is made of the same one of the input alone.
  bool keeps_channels(const Node& node) {
    static constexpr std::array<std::string_view, 12> ops = {
        "AveragePool", "Elu",     "Gelu", "GlobalAveragePool", "HardSigmoid", "HardSwish",
        "LeakyRelu",   "MaxPool", "Relu", "Sigmoid",           "Softplus",    "Tanh"};
    return node.inputs.size() == 1 && node.outputs.size() == 1 && is_together(node.inputs[0]) &&
           std::ranges::find(ops, node.op) != ops.end();
  }
  void add_wide(std::size_t number, ValueId x, std::int64_t groups) {
    const Node& node = one_.nodes[number];
    std::vector<ValueId> inputs = {x, joined(node.inputs[1])};
    if (node.inputs.size() > 2 && node.inputs[2] != no_value) inputs.push_back(joined(node.inputs[2]));
    add_together(number, std::move(inputs));
    if (groups > 1) made_.graph.nodes.back().attributes["group"] = groups * node.integer("group", 1);
  }
  void add_together(std::size_t number, std::vector<ValueId> inputs) {
    Node node = one_.nodes[number];
    const ValueId output = node.outputs.front();
    made_.together.push_back(node.name);
    node.name = "members/" + node.name;
    node.inputs = std::move(inputs);
    node.outputs.clear();
    add_outputs(node, {value_of(output)}, "members/");
    known(output).together = node.outputs.front();
    put(std::move(node));
  }

  const Graph& one_;
  const std::vector<std::vector<NamedTensor>>& members_;
  bool draws_;
  std::vector<Members> of_;
  SideBySide made_;
};

}  // namespace

SideBySide side_by_side(const Graph& one, const std::vector<std::vector<NamedTensor>>& members, bool draws) {
  return Beside(one, members, draws).make();
}

}  // namespace hfta
