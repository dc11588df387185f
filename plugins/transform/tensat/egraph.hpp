// An e-graph: terms up to equality, each equal part once. A class holds nodes that are equal, a node an operator over classes.
// Willsey, Nandi, Wang, Flatt, Tatlock, Panchekha, "egg: Fast and Extensible Equality Saturation", POPL 2021 (arXiv 2004.03082):
// hash-consing, a union-find, and congruence that is restored for a batch of unions at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tensat {

using OpId = std::uint32_t;
using NodeId = std::uint32_t;
using ClassId = std::uint32_t;

/// A node has so many children at most.
inline constexpr std::size_t max_arity = 16;

/// Numbers of operators, of inputs and of constants, which are leaves, by their names.
class Symbols {
 public:
  Symbols() = default;
  Symbols(const Symbols&) = delete;
  OpId of(std::string_view name);
  std::optional<OpId> find(std::string_view name) const;
  const std::string& name(OpId op) const { return names_[op]; }
  std::size_t size() const { return names_.size(); }

 private:
  std::deque<std::string> names_;  // whose texts stay where they are
  std::unordered_map<std::string_view, OpId> ids_;
};

class EGraph;

/// A node that a rewrite is about to make: its children are classes, or nodes before it in the same list.
struct Target {
  struct Child {
    bool is_class = true;
    std::uint32_t index = 0;
  };
  OpId op = 0;
  std::vector<Child> children;
};

/// A class that a rewrite is about to make equal to what it makes.
struct Equality {
  ClassId source = 0;
  Target::Child target;
};

/// Data of classes, which whoever implements this keeps by their numbers: shapes, or the constant that a class is worth.
/// Joins must not depend on the order.
class Analysis {
 public:
  virtual ~Analysis() = default;
  /// Joins what a node says into the data of its class, which may be new. Returns whether this changed them.
  virtual bool make(const EGraph& graph, NodeId node, ClassId of) = 0;
  /// Joins the data of a class into those of another, as both are one now. Returns whether this changed either's.
  virtual bool merge(ClassId into, ClassId from) = 0;
  /// Is called for a class whose data are new. It may add nodes and unite.
  virtual void modify(EGraph&, ClassId) {}
  /// Returns whether admits() is to be asked.
  virtual bool has_opinions() const { return false; }
  /// Returns whether these nodes can be made, and stand in the classes that a rewrite would put them into. One that is not admitted is
  /// not applied.
  virtual bool admits(const EGraph&, std::span<const Target>, std::span<const Equality>) const {
    return true;
  }
};

class EGraph {
 public:
  /// The analysis outlives the graph.
  explicit EGraph(Analysis* analysis = nullptr) : analysis_(analysis) {}

  Symbols symbols;
  Analysis* analysis() const { return analysis_; }

  /// Returns the class of a node, which is added where it is new. Throws std::length_error beyond max_arity.
  ClassId add(OpId op, std::span<const ClassId> children);
  std::optional<ClassId> lookup(OpId op, std::span<const ClassId> children) const;
  /// Say that a node will be asked for soon, so that memory is on its way then: first by the node, which returns a hash, then twice by
  /// that, as each time what is there says where the next is.
  std::uint32_t announce(OpId op, std::span<const ClassId> children) const;
  void announce_node(std::uint32_t hash) const;
  void announce_children(std::uint32_t hash) const;
  /// Adds a term, "(+ x (* 2 y))". Throws std::invalid_argument where that is none.
  ClassId add_term(std::string_view term);
  /// Says that two classes are equal. Returns false where they were. Congruence holds again after rebuild().
  bool unite(ClassId a, ClassId b);
  void rebuild();

  ClassId find(ClassId each) const;
  /// Node ids are below this; a node that turned out to be another one is not alive.
  NodeId nodes_made() const { return static_cast<NodeId>(nodes_.size()); }
  ClassId classes_made() const { return static_cast<ClassId>(above_.size()); }
  std::size_t node_count() const { return alive_; }
  std::size_t class_count() const { return classes_; }
  bool alive(NodeId node) const { return nodes_[node].alive; }
  OpId op(NodeId node) const { return nodes_[node].op; }
  ClassId class_of(NodeId node) const { return find(nodes_[node].of); }
  /// They are canonical after rebuild().
  std::span<const ClassId> children(NodeId node) const {
    return {children_.data() + nodes_[node].first, nodes_[node].arity};
  }
  /// Calls `visit(NodeId)` for each node with this class among its children, for one with two of them twice.
  template <typename Visit>
  void for_parents(ClassId of, const Visit& visit) const {
    for (std::uint32_t edge = above_[find(of)].first; edge != none; edge = edges_[edge].next)
      if (alive(edges_[edge].node)) visit(edges_[edge].node);
  }

  /// A blacklisted node is neither matched nor extracted.
  bool blacklisted(NodeId node) const { return nodes_[node].blacklisted; }
  void blacklist(NodeId node) { nodes_[node].blacklisted = true; }
  /// Nodes that were made so far are the input. Of each class that has some, the oldest is kept from the blacklist: with these,
  /// the input or what it shrank to can be extracted always.
  void seal_input() { input_ = nodes_made(); }
  NodeId input_nodes() const { return input_; }

  /// Returns classes that took in others, or whose data changed, since this was asked.
  std::vector<ClassId> take_touched();

  /// Returns what is wrong with the invariants, each in words; needs a graph that was rebuilt. It takes long.
  std::vector<std::string> violations() const;

 private:
  static constexpr std::uint32_t none = 0xffffffff;
  struct Node {
    OpId op = 0;
    std::uint32_t first = 0;  // of children_
    ClassId of = 0;
    std::uint8_t arity = 0;
    bool alive = true, blacklisted = false;
  };
  struct Above {  // edges to a class from its parents, as a list
    std::uint32_t first = none, last = none, count = 0;
  };
  struct Edge {                 // from a node to a child
    std::uint32_t next = none;  // of the same child
    NodeId node = 0;
  };
  struct Slot {
    std::uint32_t hash = 0, node = none;
  };

  static std::uint32_t hash_of(OpId op, const ClassId* children, std::size_t count);
  std::size_t place_of(std::uint32_t hash, OpId op, const ClassId* children, std::size_t count) const;
  void insert(std::uint32_t hash, NodeId node, std::size_t place);
  void grow();
  NodeId make_node(OpId op, const ClassId* children, std::size_t count, ClassId of);
  void restore(NodeId node);
  void restore_some();
  void renew(ClassId changed);

  Analysis* analysis_ = nullptr;
  std::vector<Node> nodes_;
  std::vector<ClassId> children_;
  std::vector<Edge> edges_;             // by place in children_
  mutable std::vector<ClassId> union_;  // by class
  std::vector<Above> above_;            // the same
  std::vector<Slot> table_;
  std::size_t used_ = 0, alive_ = 0, classes_ = 0;
  std::vector<NodeId> pending_;   // whose children may be others now
  std::vector<ClassId> changed_;  // whose data are new to the parents
  std::vector<ClassId> touched_;
  NodeId input_ = 0;
};

/// The nodes of a graph that was rebuilt, but for blacklisted ones, by class and by operator. It stands still while the graph grows.
class Index {
 public:
  struct Entry {
    OpId op = 0;
    NodeId node = 0;
  };

  explicit Index(const EGraph& graph);

  const EGraph& graph() const { return graph_; }
  /// Nodes of a class, sorted by operator, then by age.
  std::span<const Entry> nodes(ClassId of) const {
    return {entries_.data() + begin_[of], entries_.data() + begin_[of + 1]};
  }
  std::span<const Entry> nodes(ClassId of, OpId op) const;
  /// Nodes with this operator, in no order that means anything.
  std::span<const NodeId> with(OpId op) const;
  std::span<const ClassId> classes() const { return classes_; }
  std::span<const ClassId> children(NodeId node) const { return graph_.children(node); }

 private:
  const EGraph& graph_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> begin_, op_begin_;
  std::vector<NodeId> by_op_;
  std::vector<ClassId> classes_;
};

}  // namespace tensat
