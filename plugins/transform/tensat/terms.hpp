// A network's graph as terms of an e-graph, and terms as a network's graph. Operators that the rules do not know are symbols of
// their own, which stand for the node that they were: so any graph can be taken.
//   (bias AXIS X B)           adds a vector along an axis
//   (node NAME@2_3 ...)       the node of that name, whose only output has these sizes; "node NAME@" where it has several, or none that
//   (output I NAME@2_3 TUPLE)   is a tensor of one dimension or more: then these are its outputs
//   (list A B)                what a node with many inputs has behind the fifteenth
// The number of samples is `any_batch`, a prime that no other dimension is a multiple of: what holds for it holds for any number.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <trainyard/graph/graph.hpp>

#include "egraph.hpp"
#include "extraction.hpp"
#include "shapes.hpp"

namespace tensat {

inline constexpr std::int64_t any_batch = 1'000'003;

/// A node of a program: its children are terms before it.
struct Term {
  std::string op;
  std::vector<std::int32_t> children;
  std::string node;   ///< name of the node of the graph that it was; empty: it is new
  std::string value;  ///< name of the value that it is in the graph; the same
  bool operator==(const Term&) const = default;
};

/// Terms that were chosen, each once.
struct Program {
  std::vector<Term> terms;
  std::vector<std::int32_t> outputs;
  bool operator==(const Program&) const = default;
};

/// The terms of a graph, and all that rewrites find to be equal.
class Terms {
 public:
  explicit Terms(const trainyard::Graph& graph);

  EGraph& egraph() { return egraph_; }
  const EGraph& egraph() const { return egraph_; }
  const Shapes& shapes() const { return shapes_; }
  std::span<const ClassId> roots() const { return roots_; }
  /// Returns nodes that are symbols of their own, each with the reason: "attention (Attention)".
  const std::vector<std::string>& opaque() const { return opaque_; }
  /// Returns the nodes of the graph that were known, by their names.
  const std::map<NodeId, std::string>& names() const { return names_; }

  /// Returns what was chosen, with the names that it has in the graph.
  Program program(const Extractable& extractable, const Selection& selection) const;

 private:
  ClassId leaf(const std::string& name) { return egraph_.add(egraph_.symbols.of(name), {}); }
  ClassId number(std::int64_t value) { return leaf(std::to_string(value)); }
  ClassId make(const char* op, std::initializer_list<ClassId> children);
  ClassId value(trainyard::ValueId id);
  ClassId as_constant(const trainyard::GraphValue& value);
  void give(trainyard::ValueId id, ClassId of);
  /// Returns false where the rules do not know the node, or not as it is.
  bool take(const trainyard::Node& node);
  bool take_convolution(const trainyard::Node& node);
  bool take_gemm(const trainyard::Node& node);
  bool take_pool(const trainyard::Node& node, const char* op);
  bool take_split(const trainyard::Node& node);
  bool take_concat(const trainyard::Node& node);
  void take_opaque(const trainyard::Node& node);
  bool is_tensor(trainyard::ValueId id) const;
  bool is_number(trainyard::ValueId id) const;
  bool same_shape(trainyard::ValueId a, trainyard::ValueId b) const;
  void name(const trainyard::Node& node, ClassId of);

  const trainyard::Graph* graph_;
  Shapes shapes_;
  EGraph egraph_;
  std::vector<std::int64_t> classes_;  ///< by value of the graph; -1: not yet
  std::vector<ClassId> roots_;
  std::map<NodeId, std::string> names_;
  std::map<ClassId, std::string> values_;
  std::vector<std::string> opaque_;
  std::map<std::string, std::string> constants_;  ///< names, by content
  std::map<std::string, ClassId> views_;          ///< nodes that only view their input, by all that they are
};

/// Returns the name in a symbol: NAME of "node NAME@2_3", "output 1 NAME@2_3", "constant NAME@".
std::string name_in(const std::string& op);

/// Returns all that a node is beside its name and its inputs; not for people, as tensors are in it.
std::string text_of(const trainyard::Node& node);

/// Returns the shape of a value with `any_batch` samples; nothing where it has no dimension, or an empty one.
std::optional<std::vector<std::int64_t>> sizes_with_any_batch(const std::vector<std::int64_t>& shape);

/// Returns the graph that computes a program, for any number of samples. `original` has the inputs, the initializers, which stay what they
/// are and in their order, and the nodes that are symbols. Throws ConfigError where the program cannot be one for any number of samples.
trainyard::Graph graph_of(const trainyard::Graph& original, const Program& program);

/// Returns the graph with what follows from initializers alone computed: for inference with weights that stay.
trainyard::Graph folded(const trainyard::Graph& graph);

/// Returns what tells a graph from others: operators, attributes, shapes and names, not weights.
std::string hash_of(const trainyard::Graph& graph);

}  // namespace tensat
