#include <trainyard/graph/cut.hpp>

#include <algorithm>
#include <string>

#include <trainyard/error.hpp>

namespace trainyard {
namespace {

constexpr int before_all = -1;  ///< part number of the inputs of the graph

/// The first and last part of a value's life: the part that makes it, and the last that needs it.
struct Life {
  int made = before_all;
  int needed = before_all;
  const Node* maker = nullptr;
};

class Cutter {
 public:
  Cutter(const Graph& whole, std::span<const int> part_of_node)
      : whole_(whole), part_of_node_(part_of_node), lives_(whole.values.size()) {
    check_numbers();
    for (std::size_t i = 0; i < whole.nodes.size(); ++i) live(whole.nodes[i], part_of_node[i]);
    for (const ValueId id : whole.outputs) life(id).needed = parts_ - 1;
  }

  std::vector<Graph> run() const {
    std::vector<Graph> result;
    for (int part = 0; part < parts_; ++part) result.push_back(graph_of(part));
    return result;
  }

 private:
  Life& life(ValueId id) { return lives_[static_cast<std::size_t>(id)]; }

  void check_numbers() {
    if (part_of_node_.size() != whole_.nodes.size() || whole_.nodes.empty())
      throw ConfigError("cut: has part numbers for " + std::to_string(part_of_node_.size()) +
                        " nodes, the graph has " + std::to_string(whole_.nodes.size()));
    parts_ = std::ranges::max(part_of_node_) + 1;
    for (int part = std::min(0, std::ranges::min(part_of_node_)); part < parts_; ++part)
      if (part < 0 || std::ranges::find(part_of_node_, part) == part_of_node_.end())
        throw ConfigError("cut: part " + std::to_string(part) +
                          (part < 0 ? " is no part; they count from 0" : " has no node"));
  }

  void live(const Node& node, int part) {
    for (const ValueId id : node.inputs) {
      if (id == no_value) continue;
      Life& read = life(id);
      if (read.made > part)
        throw ConfigError("cut: node \"" + node.name + "\" of part " + std::to_string(part) + " reads \"" +
                          whole_.values[static_cast<std::size_t>(id)].name + "\" of node \"" +
                          read.maker->name + "\", which is in part " + std::to_string(read.made) +
                          "; along an edge parts must not decrease");
      read.needed = std::max(read.needed, part);
    }
    for (const ValueId id : node.outputs)
      if (id != no_value) life(id) = {part, part, &node};
  }

  /// Returns the values that part `part` takes from the one before, in the order of the values.
  std::vector<ValueId> entering(int part) const {
    std::vector<ValueId> result;
    for (std::size_t id = 0; id < lives_.size(); ++id)
      if (!whole_.values[id].initializer.defined() && lives_[id].made < part && lives_[id].needed >= part)
        result.push_back(static_cast<ValueId>(id));
    return result;
  }

  Graph graph_of(int part) const {
    Graph result;
    result.inputs = part == 0 ? whole_.inputs : entering(part);
    result.outputs = part == parts_ - 1 ? whole_.outputs : entering(part + 1);
    for (std::size_t i = 0; i < whole_.nodes.size(); ++i)
      if (part_of_node_[i] == part) result.nodes.push_back(whole_.nodes[i]);
    renumber(result);
    return result;
  }

  /// Takes over the values that the part has, in their order, and renumbers them for it.
  void renumber(Graph& part) const {
    std::vector<ValueId> number(whole_.values.size(), no_value);
    const auto each = [&](const auto& function) {
      for (ValueId& id : part.inputs) function(id);
      for (ValueId& id : part.outputs) function(id);
      for (Node& node : part.nodes) {
        for (ValueId& id : node.inputs) function(id);
        for (ValueId& id : node.outputs) function(id);
      }
    };
    std::vector<bool> has(whole_.values.size());
    each([&](ValueId id) {
      if (id != no_value) has[static_cast<std::size_t>(id)] = true;
    });
    for (std::size_t id = has.size(); id-- > 0;)
      if (has[id]) number[id] = part.add_value(whole_.values[id]);
    each([&](ValueId& id) {
      if (id != no_value) id = number[static_cast<std::size_t>(id)];
    });
  }

  const Graph& whole_;
  std::span<const int> part_of_node_;
  std::vector<Life> lives_;
  int parts_ = 0;
};

}  // namespace

std::vector<Graph> cut(const Graph& graph, std::span<const int> part_of_node) {
  return Cutter(graph, part_of_node).run();
}

}  // namespace trainyard
