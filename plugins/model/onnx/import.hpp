// From an ONNX file to a network: each node by the rule of its operator (rules.cpp), which says how what it was in
// earlier versions of ONNX is written in that of the Graph.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <trainyard/graph/graph.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/pattern.hpp>

#include "model_file.hpp"

namespace onnx {

using namespace trainyard;

inline constexpr std::int64_t oldest_opset = 6, newest_opset = 23;

struct ImportOptions {
  std::string output;  ///< name of the value that the network gives; empty: the only output of the file
  std::vector<std::string> fixed;  ///< patterns of initializers that do not train
  bool reshape_input = false;  ///< data of another shape and as many numbers is brought into that of the file
};

/// `inputs`: what the network is given, in the order of the file's inputs that the output needs; shapes with
/// batch_dim in front, or without a batch. Initializers of floating point and a dimension or more become
/// parameters under their names; the statistics of BatchNormalization buffers; what Constant nodes hold stays
/// as it is. What depends on constants alone is computed here. Throws ConfigError, by path and node, for what
/// a Graph cannot express, ahead of anything that costs; DataError for tensors that are damaged.
std::unique_ptr<GraphNetwork> import_network(const ModelFile& model, const std::vector<GraphValue>& inputs,
                                             const ImportOptions& options);

/// A dimension of the batch in a constant that holds a shape: Reshape puts it where the batch comes in. k times
/// the batch is `batch_symbol` + k.
inline constexpr std::int64_t batch_symbol = INT64_MIN / 2;
inline bool is_batch(std::int64_t dim) {
  return dim < INT64_MIN / 4;
}

/// The importer at one node, as the rules see it.
class Import {
 public:
  Import(const ModelFile& model, const std::vector<GraphValue>& inputs, const ImportOptions& options);
  Graph run();

  // The node.
  const FileNode& node() const { return *node_; }
  const ModelFile& model() const { return model_; }
  std::int64_t opset() const { return model_.opset; }
  std::size_t inputs() const { return node_->inputs.size(); }
  /// Input `index` in the graph; no_value where it is not given.
  ValueId input(std::size_t index) const;
  std::vector<ValueId> all_inputs() const;
  const std::vector<std::int64_t>& shape(ValueId id) const { return value(id).shape; }
  /// Fails where the node has no such input.
  const GraphValue& value(ValueId id) const {
    require(id != no_value, "lacks an input");
    return graph_.values[static_cast<std::size_t>(id)];
  }
  /// The tensor of a value that is not computed; fails where it is.
  const at::Tensor& constant(ValueId id) const;
  /// The same as integers, perhaps with batch symbols.
  std::vector<std::int64_t> integers(ValueId id) const;

  bool has(const char* attribute) const { return node_->attributes.contains(attribute); }
  /// The attribute; fails where it has another type.
  std::int64_t integer(const char* attribute, std::int64_t fallback) const;
  float number(const char* attribute, float fallback) const;
  std::string text(const char* attribute, const std::string& fallback) const;
  std::vector<std::int64_t> integer_list(const char* attribute) const;
  const AttributeValue* attribute(const char* name) const;
  /// All attributes but these, as the Graph has them.
  std::map<std::string, Attribute, std::less<>> attributes(const std::set<std::string>& without = {}) const;

  // What comes of it.
  using Attributes = std::map<std::string, Attribute, std::less<>>;
  /// Output `index` of the node is this value.
  void bind(std::size_t index, ValueId id);
  /// Output 0 is a constant that grows from sample to sample, in each number by that much; `id` is that of the first one.
  void bind_growing(ValueId id, std::int64_t growth);
  /// 0: it is the same for all samples.
  std::int64_t growth(ValueId id) const;
  /// A value that is held.
  ValueId hold(const at::Tensor& tensor);
  ValueId hold(const std::vector<std::int64_t>& integers);
  /// A node whose output is the first of the file's node, where the others are not read; computed at once where it
  /// has constants alone.
  void emit(std::string op, std::vector<ValueId> inputs, Attributes attributes);
  /// The same with the first `count` outputs.
  void emit_outputs(std::string op, std::vector<ValueId> inputs, Attributes attributes, std::size_t count);
  /// One in between.
  ValueId step(std::string op, std::vector<ValueId> inputs, Attributes attributes = {});
  /// An initializer of the same numbers, under the name of the node's output.
  ValueId apart(ValueId id);
  /// It does not train.
  void fix(ValueId id);

  [[noreturn]] void fail(const std::string& message) const;
  void require(bool condition, const std::string& message) const {
    if (!condition) fail(message);
  }
  /// An input of the network with its samples in front; no_value where there is none.
  ValueId batched_input() const;
  /// What the first dimension is in the file, where it is a number there.
  std::optional<std::int64_t> batch_of_file() const { return batch_of_file_; }

 private:
  std::vector<bool> needed(const std::string& output);
  void take_initializers();
  ValueId add_initializer(const std::string& name, at::Tensor tensor);
  void take_inputs();
  ValueId take_input(const FileValue& of_file, const GraphValue& given);
  void take_node(const FileNode& node, std::size_t index);
  std::vector<ValueId> append(Node node, std::vector<std::string> names);
  bool all_constant(const Node& node) const;
  static std::string unique(const std::string& name, std::set<std::string>& taken);
  std::string node_name() const;

  const ModelFile& model_;
  const std::vector<GraphValue>& given_;
  const ImportOptions& options_;
  Graph graph_;
  std::map<std::string, ValueId, std::less<>> values_;
  std::map<ValueId, std::int64_t> growing_;
  std::set<std::string> read_;  ///< names of values that the output depends on
  std::set<std::string> node_names_, value_names_;
  std::optional<std::int64_t> batch_of_file_;
  const FileNode* node_ = nullptr;
  std::size_t index_ = 0;  ///< of the node in the file
};

/// How a node of that operator is imported; null: it is not known.
using Rule = void (*)(Import&);
Rule find_rule(std::string_view op);

}  // namespace onnx
