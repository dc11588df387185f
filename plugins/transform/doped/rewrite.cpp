#include "rewrite.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include "lib/printed.hpp"
#include "nearest.hpp"

#include <trainyard/error.hpp>
#include <trainyard/formats/safetensors.hpp>
#include <trainyard/helpers/co_matrix.hpp>
#include <trainyard/pattern.hpp>
#include <trainyard/random.hpp>

namespace doped {
namespace {

/// The positions of a node's weights, matrices whose rows are outputs.
std::vector<std::size_t> weight_inputs(const Node& node) {
  if (node.op == "Gemm" && node.integer("transA", 0) == 0 && node.integer("transB", 0) == 1) return {1};
  if (node.op == "LSTM" && node.text("direction", "forward") != "bidirectional") return {1, 2};
  return {};
}

/// How often each value is read.
std::vector<int> readers(const Graph& graph) {
  std::vector<int> count(graph.values.size());
  const auto read = [&](ValueId id) {
    if (id != no_value) ++count[static_cast<std::size_t>(id)];
  };
  for (const Node& node : graph.nodes) std::ranges::for_each(node.inputs, read);
  std::ranges::for_each(graph.outputs, read);
  return count;
}

bool is_pattern(const std::string& text) {
  return text.find_first_of("*?") != std::string::npos;
}

std::string quoted(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "\"" : ", \"") + word + "\"";
  return "[" + text + "]";
}

/// Why a weight stays as it is; empty where it does not.
std::string obstacle(const GraphValue& value, int read, const Replacement& made, const Request& request) {
  const std::int64_t budget =
      std::llround(static_cast<double>(made.structure.elements()) / request.target_cf);
  if (!value.trainable) return "is no parameter";
  if (read > 1) return "is shared with another layer";
  if (made.structure.parameters() <= budget) return "";
  return "is " + std::to_string(made.structure.rows) + " x " + std::to_string(made.structure.columns) +
         ", of which target_cf = " + lib::printed("%g", request.target_cf) + " leaves " +
         std::to_string(budget) + " numbers, and the smallest structure, " + made.structure.text() +
         ", has " + std::to_string(made.structure.parameters());
}

Replacement planned(const Graph& graph, std::size_t node, std::size_t input, const Request& request) {
  const GraphValue& value = graph.values[static_cast<std::size_t>(graph.nodes[node].inputs[input])];
  const std::int64_t rows = value.shape[value.shape.size() - 2], columns = value.shape.back();
  const std::int64_t gates = graph.nodes[node].op == "LSTM" ? 4 : 1;
  const Wanted wanted{.form = request.form, .rows = rows, .columns = columns, .blocks = gates};
  const std::int64_t budget = std::llround(static_cast<double>(rows * columns) / request.target_cf);
  Replacement made{.node = node, .input = input, .weight = value.name, .structure = {}, .nonzeros = 0};
  made.structure =
      largest(wanted, std::llround((request.alone ? 1.0 : request.share) * static_cast<double>(budget)));
  if (!request.alone) made.nonzeros = budget - made.structure.parameters();
  return made;
}

class Rewriter {
 public:
  Rewriter(Graph graph, const Request& request)
      : graph_(std::move(graph)), seed_(request.seed), alone_(request.alone), start_(request.start) {
    if (!start_.empty()) given_ = read_safetensors(start_);
  }

  void replace(const Replacement& made) {
    const auto id = static_cast<std::size_t>(graph_.nodes[made.node].inputs[made.input]);
    const at::Tensor weight = dense(made.weight, std::exchange(graph_.values[id].initializer, {}).detach());
    graph_.values[id].trainable = false;
    const Structure& structure = made.structure;
    const double deviation = std::max(weight.std().item<double>(), 1e-8);
    at::Tensor matrix = weight.reshape({structure.rows, structure.columns});
    factors_.clear();
    if (!start_.empty()) {
      factors_ = nearest(structure, matrix);
      matrix = matrix - product(structure, factors_);
    }
    const std::pair<std::string, ValueId> term = structured(made.weight, structure, deviation);
    const ValueId sum = alone_ ? term.second : doped(made.weight, term, matrix);
    // The node that makes the weight takes its name.
    node("Reshape", made.weight, {sum, integers(made.weight + ".shape", weight.sizes().vec())}, {},
         static_cast<ValueId>(id));
    before_[made.node].insert(before_[made.node].end(), std::make_move_iterator(made_.begin()),
                              std::make_move_iterator(made_.end()));
    made_.clear();
  }

  Graph finish() {
    std::vector<Node> nodes;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      std::ranges::move(before_[i], std::back_inserter(nodes));
      nodes.push_back(std::move(graph_.nodes[i]));
    }
    graph_.nodes = std::move(nodes);
    graph_.infer_shapes();
    return std::move(graph_);
  }

 private:
  ValueId node(std::string op, std::string name, std::vector<ValueId> inputs,
               std::map<std::string, Attribute, std::less<>> attributes = {}, ValueId output = no_value) {
    if (output == no_value) output = graph_.add_value({.name = name, .shape = {}, .initializer = {}});
    made_.push_back({.op = std::move(op),
                     .name = std::move(name),
                     .inputs = std::move(inputs),
                     .outputs = {output},
                     .attributes = std::move(attributes)});
    return output;
  }

  ValueId value(std::string name, at::Tensor tensor, bool trainable = false) {
    std::vector<std::int64_t> shape = tensor.sizes().vec();
    const at::ScalarType dtype = tensor.scalar_type();
    return graph_.add_value({.name = std::move(name),
                             .shape = std::move(shape),
                             .dtype = dtype,
                             .initializer = std::move(tensor),
                             .trainable = trainable});
  }

  ValueId integers(std::string name, const std::vector<std::int64_t>& numbers) {
    return value(std::move(name), at::tensor(numbers, at::kLong));
  }

  /// Returns the weight to begin with: that of the file, or as the model has it.
  at::Tensor dense(const std::string& name, const at::Tensor& own) const {
    if (start_.empty()) return own;
    const auto found = std::ranges::find(given_, name, &NamedTensor::name);
    if (found == given_.end()) throw ConfigError("start: " + start_ + " has no tensor \"" + name + "\"");
    if (found->tensor.sizes() != own.sizes())
      throw ConfigError("start: \"" + name + "\" of " + start_ + " is " +
                        shape_text(found->tensor.sizes().vec()) + ", the model's is " +
                        shape_text(own.sizes().vec()));
    return found->tensor.to(own.scalar_type());
  }

  /// Adds a factor: the next of those that are given, or drawn.
  ValueId parameter(const std::string& name, const std::vector<std::int64_t>& shape, double deviation) {
    if (!factors_.empty()) {
      at::Tensor given = factors_.front().reshape(shape).contiguous().clone();
      factors_.erase(factors_.begin());
      return value(name, std::move(given), true);
    }
    at::Tensor tensor = at::full(shape, 0.0);
    fill_normal(tensor, RandomStream(seed_, "model/" + name), 0.0, deviation);
    return value(name, std::move(tensor), true);
  }

  ValueId reshape(ValueId x, const std::string& name, const std::vector<std::int64_t>& shape) {
    return node("Reshape", name, {x, integers(name + ".shape", shape)});
  }

  /// Adds K, whose elements begin with the deviation that the weight's had, and returns its name and value.
  std::pair<std::string, ValueId> structured(const std::string& weight, const Structure& s,
                                             double deviation) {
    const std::vector<std::int64_t> matrix = {s.rows, s.columns};
    if (s.form == Form::kp) {
      const std::string name = weight + ".kron";
      const ValueId left = parameter(name + ".left", {s.left_rows, s.left_columns}, std::sqrt(deviation));
      const ValueId right = parameter(name + ".right", {s.right_rows, s.right_columns}, std::sqrt(deviation));
      const ValueId product =
          node("Mul", name + ".products",
               {reshape(left, name + ".left.spread", {s.left_rows, 1, s.left_columns, 1}),
                reshape(right, name + ".right.spread", {1, s.right_rows, 1, s.right_columns})});
      return {name, reshape(product, name, matrix)};
    }
    if (s.form == Form::lmf) {
      const std::string name = weight + ".low_rank";
      // A sum of `rank` products of two.
      const double each = std::pow(deviation * deviation / static_cast<double>(s.rank), 0.25);
      const ValueId u = parameter(name + ".u", {s.rows, s.rank}, each);
      const ValueId v = parameter(name + ".v", {s.rank, s.columns}, each);
      return {name, node("MatMul", name, {u, v})};
    }
    const std::string name = weight + ".hmd";
    const std::int64_t rows = s.rows / s.blocks;
    ValueId free = no_value;
    if (s.free_rows > 0) free = parameter(name + ".rows", {s.blocks, s.free_rows, s.columns}, deviation);
    const ValueId u = parameter(name + ".u", {s.blocks, rows - s.free_rows, 1}, std::sqrt(deviation));
    const ValueId v = parameter(name + ".v", {s.blocks, 1, s.columns}, std::sqrt(deviation));
    ValueId all = node("MatMul", name + ".rank_one", {u, v});
    if (free != no_value) all = node("Concat", name + ".blocks", {free, all}, {{"axis", std::int64_t{1}}});
    return {name, reshape(all, name, matrix)};
  }

  /// Adds S and the sum.
  ValueId doped(const std::string& weight, const std::pair<std::string, ValueId>& term,
                const at::Tensor& matrix) {
    const std::string name = weight + std::string(sparse_suffix);
    const ValueId sparse = value(name, matrix.clone(), true);
    const ValueId unit = value(weight + ".row_scale_unit", at::full({1}, row_scale_one, at::kInt));
    const ValueId one = node("Cast", weight + ".row_scale_one", {unit}, {{"to", std::int64_t{1}}});
    return node(
        "Add", weight + ".sum",
        {scaled(term.second, term.first, matrix.size(0), one), scaled(sparse, name, matrix.size(0), one)});
  }

  /// Adds what a hook may scale the rows of a term by (helpers/co_matrix.hpp).
  ValueId scaled(ValueId x, const std::string& term, std::int64_t rows, ValueId one) {
    const std::string name = term + std::string(row_scale_suffix);
    const ValueId scale = value(name, at::full({rows, 1}, row_scale_one, at::kInt));
    const ValueId number = node("Cast", name + ".number", {scale}, {{"to", std::int64_t{1}}});
    return node("Mul", term + ".scaled", {x, node("Div", name + ".share", {number, one})});
  }

  Graph graph_;
  std::uint64_t seed_;
  bool alone_;
  std::string start_;
  std::vector<NamedTensor> given_;  ///< tensors of the file `start`
  std::vector<at::Tensor>
      factors_;  ///< of the weight at hand, that are still to be added; empty: they are drawn
  std::vector<Node> made_;
  std::map<std::size_t, std::vector<Node>> before_;
};

}  // namespace

std::vector<Replacement> replacements(const Graph& graph, const Request& request) {
  const std::vector<int> read = readers(graph);
  std::vector<Replacement> all;
  std::vector<bool> used(request.layers.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    bool chosen = false, by_name = false;
    for (std::size_t k = 0; k < request.layers.size(); ++k) {
      if (weight_inputs(node).empty() || !fits(request.layers[k], node.name)) continue;
      chosen = used[k] = true;
      by_name = by_name || !is_pattern(request.layers[k]);
    }
    if (!chosen) continue;
    for (const std::size_t input : weight_inputs(node)) {
      const auto id = static_cast<std::size_t>(node.inputs[input]);
      Replacement made = planned(graph, i, input, request);
      made.obstacle = obstacle(graph.values[id], read[id], made, request);
      if (by_name && !made.obstacle.empty())
        throw ConfigError("layers = " + quoted(request.layers) + ": " + made.text());
      all.push_back(std::move(made));
    }
  }
  for (std::size_t k = 0; k < used.size(); ++k)
    if (!used[k])
      throw ConfigError(
          "layers: \"" + request.layers[k] +
          "\" fits no linear or recurrent layer of the network (trainyard model show lists them)");
  if (std::ranges::none_of(all, &std::string::empty, &Replacement::obstacle))
    throw ConfigError("layers = " + quoted(request.layers) + ": no weight can be replaced: " +
                      (all.empty() ? "the network has no linear or recurrent layer" : all.front().text()));
  return all;
}

Graph rewritten(Graph graph, const std::vector<Replacement>& replacements, const Request& request) {
  Rewriter rewriter(std::move(graph), request);
  for (const Replacement& each : replacements)
    if (each.obstacle.empty()) rewriter.replace(each);
  return rewriter.finish();
}

std::string Replacement::text() const {
  if (!obstacle.empty()) return weight + " stays as it is: it " + obstacle;
  const std::int64_t all = structure.elements(), left = structure.parameters() + nonzeros;
  return weight + " " + std::to_string(structure.rows) + " x " + std::to_string(structure.columns) + ": " +
         structure.text() + ", " + std::to_string(structure.parameters()) + " numbers" +
         (nonzeros == 0 ? "" : ", and " + std::to_string(nonzeros) + " of a sparse matrix") + "; " +
         lib::printed("%.4g", static_cast<double>(all) / static_cast<double>(left)) + " times fewer";
}

}  // namespace doped
