// Programs as graphs of a network.
#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <trainyard/error.hpp>
#include <trainyard/graph/network.hpp>

#include "terms.hpp"

namespace tensat {

using trainyard::Attribute;
using trainyard::Graph;
using trainyard::GraphValue;
using trainyard::no_value;
using trainyard::Node;
using trainyard::ValueId;

namespace {

using Sizes = std::vector<std::int64_t>;
using Attributes = std::map<std::string, Attribute, std::less<>>;

/// A piece of a tensor along an axis.
struct Piece {
  std::int32_t whole = 0;
  std::int64_t axis = 0, begin = 0, length = 0;
};

class Emitter {
 public:
  Emitter(const Graph& original, const Program& program)
      : original_(original), program_(program), values_(program.terms.size(), no_value) {
    for (const Node& node : original.nodes) nodes_.emplace(node.name, &node);
    // Inputs and initializers in their order, so that parameters keep theirs.
    for (const GraphValue& value : original.values) {
      const bool is_input = std::ranges::any_of(original.inputs, [&](ValueId id) {
        return &original.values[static_cast<std::size_t>(id)] == &value;
      });
      if (!is_input && !value.initializer.defined()) continue;
      known_.emplace(value.name, graph_.add_value(value));
    }
    for (const ValueId id : original.inputs)
      graph_.inputs.push_back(known_.at(original.values[static_cast<std::size_t>(id)].name));
    infer_all();
  }

  Graph run() {
    count_readers();
    for (std::size_t i = 0; i < program_.terms.size(); ++i)
      if (readers_[i] > 0) emit(static_cast<std::int32_t>(i));
    for (const std::int32_t output : program_.outputs) graph_.outputs.push_back(value(output));
    graph_.infer_shapes();
    return std::move(graph_);
  }

 private:
  const Term& term(std::int32_t i) const { return program_.terms[static_cast<std::size_t>(i)]; }
  const Value& shape(std::int32_t i) const { return shapes_[static_cast<std::size_t>(i)]; }
  const std::string& op(std::int32_t i) const { return term(i).op; }
  std::int32_t child(std::int32_t i, std::size_t k) const { return term(i).children[k]; }
  std::int64_t number(std::int32_t i, std::size_t k) const { return shape(child(i, k)).number; }

  void infer_all() {
    for (const Term& each : program_.terms) {
      std::vector<Value> children;
      for (const std::int32_t c : each.children) {
        if (c < 0 || static_cast<std::size_t>(c) >= shapes_.size())
          throw std::invalid_argument("a term uses one that comes later");
        children.push_back(shape(c));
      }
      auto made = infer(each.op, children);
      if (!made) throw std::invalid_argument("'" + each.op + "' cannot be made of what it is given");
      shapes_.push_back(*std::move(made));
    }
    for (const std::int32_t output : program_.outputs)
      if (output < 0 || static_cast<std::size_t>(output) >= shapes_.size())
        throw std::invalid_argument("an output is no term");
  }

  bool is_part(std::int32_t i) const { return op(i) == "head" || op(i) == "tail"; }
  /// Children whose values a term reads: not numbers, names, or tensors that are there for their length.
  std::vector<std::int32_t> read_by(std::int32_t i) const {
    const std::string& name = op(i);
    if (name == "input" || name == "weight") return {};
    if (is_part(i)) return {child(i, 1)};
    if (name == "enlarge" || name == "merge") return {child(i, 0)};
    std::vector<std::int32_t> all;
    for (const std::int32_t c : term(i).children)
      if (shape(c).kind != Value::Kind::number) all.push_back(c);
    return all;
  }

  /// Counts, from the outputs down, who reads what; parts of parts are parts of the whole.
  void count_readers() {
    readers_.assign(program_.terms.size(), 0);
    for (const std::int32_t output : program_.outputs) ++readers_[static_cast<std::size_t>(output)];
    pieces_.resize(program_.terms.size());
    for (auto i = static_cast<std::int32_t>(program_.terms.size()); i-- > 0;) {
      if (readers_[static_cast<std::size_t>(i)] == 0) continue;
      if (is_part(i)) {
        const Piece piece = piece_of(i);
        pieces_[static_cast<std::size_t>(i)] = piece;
        cuts_[{piece.whole, piece.axis}].insert({piece.begin, piece.length});
        ++readers_[static_cast<std::size_t>(piece.whole)];
        continue;
      }
      for (const std::int32_t c : read_by(i)) ++readers_[static_cast<std::size_t>(c)];
    }
  }

  Piece piece_of(std::int32_t i) const {
    const std::int64_t axis = number(i, 0), size = shape(i).shape[static_cast<std::size_t>(axis)];
    const std::int32_t of = child(i, 1);
    const std::int64_t all = shape(of).shape[static_cast<std::size_t>(axis)];
    if (size % any_batch == 0 || all % any_batch == 0)
      throw trainyard::ConfigError("a tensor would be cut between its samples");
    Piece piece{of, axis, op(i) == "head" ? 0 : all - size, size};
    if (is_part(of) && number(of, 0) == axis) {
      const Piece outer = piece_of(of);
      piece = {outer.whole, axis, outer.begin + piece.begin, size};
    }
    return piece;
  }

  std::string unique(std::string name) {
    if (name.empty()) name = "tensat." + std::to_string(++count_);
    std::string free = name;
    for (int i = 2; names_.contains(free) || known_.contains(free); ++i)
      free = name + "." + std::to_string(i);
    names_.insert(free);
    return free;
  }

  /// Adds a node of one output.
  ValueId node(std::int32_t of, std::string op, std::vector<ValueId> inputs, Attributes attributes = {},
               bool named = true) {
    const Term& its = term(of);
    const std::string name = unique(named ? its.node : "");
    std::string value = named ? its.value : "";
    if (value.empty()) value = name;
    const ValueId output = graph_.add_value({.name = value_name(value), .shape = {}, .initializer = {}});
    graph_.nodes.push_back({.op = std::move(op),
                            .name = name,
                            .inputs = std::move(inputs),
                            .outputs = {output},
                            .attributes = std::move(attributes)});
    return output;
  }

  std::string value_name(const std::string& wanted) {
    std::string free = wanted;
    for (int i = 2; known_.contains(free); ++i) free = wanted + "." + std::to_string(i);
    known_.emplace(free, no_value);
    return free;
  }

  ValueId integers(const Sizes& numbers) { return constant(at::tensor(numbers, at::kLong)); }

  ValueId constant(at::Tensor of_integers) {
    return graph_.add_value({.name = value_name("tensat.integers." + std::to_string(++count_)),
                             .shape = of_integers.sizes().vec(),
                             .dtype = at::kLong,
                             .initializer = std::move(of_integers)});
  }

  ValueId given(const std::string& name) const {
    const auto found = known_.find(name);
    if (found == known_.end() || found->second == no_value)
      throw std::invalid_argument("the graph has no input or weight \"" + name + "\"");
    return found->second;
  }

  ValueId value(std::int32_t i) {
    ValueId& made = values_[static_cast<std::size_t>(i)];
    if (made != no_value) return made;
    if (op(i) == "input" || op(i) == "weight")
      return made = given(op(child(i, 0)).substr(0, op(child(i, 0)).rfind('@')));
    if (op(i) == "none@") return no_value;
    if (op(i).starts_with("constant ") || op(i).starts_with("given ")) return made = given(name_in(op(i)));
    if (op(i) == "transpose") return made = transposed(i);
    if (product(i)) return made = multiplied(i, i, no_value);
    throw std::logic_error("'" + op(i) + "' is read before it is there");
  }

  bool product(std::int32_t i) const { return op(i) == "matmul" || op(i) == "conv2d"; }

  ValueId transposed(std::int32_t i) {
    const Sizes perm = shape(i).shape.size() == 2 ? Sizes{1, 0} : Sizes{0, 2, 1};
    return node(i, "Transpose", {value(child(i, 0))}, {{"perm", perm}});
  }

  /// A product, with a bias unless that is no value; the last node is named as `of` is.
  ValueId multiplied(std::int32_t of, std::int32_t i, ValueId bias) {
    if (op(i) == "matmul") {
      const std::int32_t a = child(i, 0), b = child(i, 1);
      const bool turned = op(b) == "transpose" && shape(b).shape.size() == 2;
      if (!turned && bias == no_value) return node(of, "MatMul", {value(a), value(b)});
      std::vector<ValueId> inputs = {value(a), value(turned ? child(b, 0) : b)};
      if (bias != no_value) inputs.push_back(bias);
      return node(of, "Gemm", std::move(inputs), {{"transB", std::int64_t{turned}}});
    }
    const std::int32_t x = child(i, 4), w = child(i, 5);
    const Sizes &image = shape(x).shape, &kernel = shape(w).shape;
    const std::int64_t down = number(i, 2) == 0 ? (kernel[2] - 1) / 2 : 0,
                       across = number(i, 2) == 0 ? (kernel[3] - 1) / 2 : 0;
    std::vector<ValueId> inputs = {value(x), value(w)};
    if (bias != no_value) inputs.push_back(bias);
    const std::int64_t act = number(i, 3);
    const ValueId made = node(of, "Conv", std::move(inputs),
                              {{"strides", Sizes{number(i, 0), number(i, 1)}},
                               {"pads", Sizes{down, across, down, across}},
                               {"kernel_shape", Sizes{kernel[2], kernel[3]}},
                               {"group", image[1] / kernel[1]}},
                              act == 0);
    if (act == 0) return made;
    return node(of, act == 1 ? "Sigmoid" : act == 2 ? "Relu" : "Tanh", {made});
  }

  ValueId biased(std::int32_t i) {
    const std::int32_t x = child(i, 1), b = child(i, 2);
    const std::int64_t axis = number(i, 0);
    const auto rank = static_cast<std::int64_t>(shape(x).shape.size());
    const bool fits =
        op(x) == "conv2d" ? axis == 1 && number(x, 3) == 0 : op(x) == "matmul" && rank == 2 && axis == 1;
    if (fits && readers_[static_cast<std::size_t>(x)] == 1 &&
        values_[static_cast<std::size_t>(x)] == no_value)
      return multiplied(i, x, value(b));
    ValueId vector = value(b);
    if (axis != rank - 1) {
      Sizes spread(static_cast<std::size_t>(rank - axis), 1);
      spread[0] = shape(b).shape[0];
      vector = node(i, "Reshape", {vector, integers(spread)}, {}, false);
    }
    return node(i, "Add", {value(x), vector});
  }

  ValueId concatenated(std::int32_t i) {
    std::vector<ValueId> parts;
    flatten(i, number(i, 0), parts);
    return node(i, "Concat", std::move(parts), {{"axis", number(i, 0)}});
  }
  void flatten(std::int32_t i, std::int64_t axis, std::vector<ValueId>& parts) {
    for (const std::size_t k : {1, 2}) {
      const std::int32_t part = child(i, k);
      if (op(part) == "concat" && number(part, 0) == axis && readers_[static_cast<std::size_t>(part)] == 1)
        flatten(part, axis, parts);
      else
        parts.push_back(value(part));
    }
  }

  /// A whole is cut once, at all places at which it is cut, or piece by piece where pieces overlap.
  ValueId part(std::int32_t i) {
    const Piece piece = pieces_[static_cast<std::size_t>(i)];
    const std::pair key(piece.whole, piece.axis);
    const auto& cuts = cuts_.at(key);
    const std::int64_t all = shape(piece.whole).shape[static_cast<std::size_t>(piece.axis)];
    Sizes lengths;
    std::int64_t at = 0;
    bool apart = true;
    for (const auto& [begin, length] : cuts) {
      if (begin < at) apart = false;
      if (begin > at) lengths.push_back(begin - at);
      lengths.push_back(length);
      at = begin + length;
    }
    if (at < all) lengths.push_back(all - at);
    if (!apart)
      return node(i, "Slice",
                  {value(piece.whole), integers({piece.begin}), integers({piece.begin + piece.length}),
                   integers({piece.axis})});
    auto& made = splits_[key];
    if (made.empty()) {
      const std::string name = unique("");
      Node split{.op = "Split",
                 .name = name,
                 .inputs = {value(piece.whole), integers(lengths)},
                 .outputs = {},
                 .attributes = {{"axis", piece.axis}}};
      std::int64_t begin = 0;
      for (std::size_t k = 0; k < lengths.size(); begin += lengths[k++]) {
        std::string wanted = name + "." + std::to_string(k);
        for (std::size_t t = 0; t < program_.terms.size(); ++t)
          if (readers_[t] > 0 && is_part(static_cast<std::int32_t>(t)) && pieces_[t].whole == piece.whole &&
              pieces_[t].axis == piece.axis && pieces_[t].begin == begin && pieces_[t].length == lengths[k] &&
              !program_.terms[t].value.empty())
            wanted = program_.terms[t].value;
        split.outputs.push_back(
            graph_.add_value({.name = value_name(wanted), .shape = {}, .initializer = {}}));
        made.emplace(begin, split.outputs.back());
      }
      graph_.nodes.push_back(std::move(split));
    }
    return made.at(piece.begin);
  }

  ValueId enlarged(std::int32_t i) {
    const Sizes &small = shape(child(i, 0)).shape, &large = shape(i).shape;
    const std::int64_t down = (large[2] - small[2]) / 2, across = (large[3] - small[3]) / 2;
    return node(i, "Pad", {value(child(i, 0)), integers({0, 0, down, across, 0, 0, down, across})});
  }

  /// Copies of the kernel beside each other, of which each group keeps the one in its place. What is kept says a tensor of integers, as one
  /// of floats would be a buffer of the network.
  ValueId with_fewer_groups(std::int32_t i) {
    const Sizes& kernel = shape(child(i, 0)).shape;
    const std::int64_t count = number(i, 2), outputs = kernel[0] * kernel[1] / shape(child(i, 1)).shape[1];
    at::Tensor mask = at::zeros({kernel[0], count * kernel[1], 1, 1}, at::kLong);
    for (std::int64_t output = 0; output < kernel[0]; ++output)
      mask[output].narrow(0, output / outputs % count * kernel[1], kernel[1]).fill_(1);
    const std::vector<ValueId> copies(static_cast<std::size_t>(count), value(child(i, 0)));
    const ValueId wide = node(i, "Concat", copies, {{"axis", std::int64_t{1}}}, false),
                  kept = node(i, "Cast", {constant(std::move(mask))}, {{"to", std::int64_t{1}}}, false);
    return node(i, "Mul", {wide, kept});
  }

  ValueId pooled(std::int32_t i) {
    const std::int64_t height = number(i, 0), width = number(i, 1),
                       down = number(i, 4) == 0 ? (height - 1) / 2 : 0,
                       across = number(i, 4) == 0 ? (width - 1) / 2 : 0;
    Attributes attributes = {{"kernel_shape", Sizes{height, width}},
                             {"strides", Sizes{number(i, 2), number(i, 3)}},
                             {"pads", Sizes{down, across, down, across}}};
    if (op(i) == "poolavg") attributes.emplace("count_include_pad", std::int64_t{1});
    return node(i, op(i) == "poolmax" ? "MaxPool" : "AveragePool", {value(child(i, 5))},
                std::move(attributes));
  }

  void inputs_of(std::int32_t i, std::vector<ValueId>& inputs) {
    for (const std::int32_t c : term(i).children) {
      if (op(c) == "list")
        inputs_of(c, inputs);
      else
        inputs.push_back(value(c));
    }
  }

  void opaque(std::int32_t i) {
    const std::string name = name_in(op(i));
    const auto found = nodes_.find(name);
    if (found == nodes_.end()) throw std::invalid_argument("the graph has no node \"" + name + "\"");
    Node made = *found->second;
    made.name = unique(name);
    made.inputs.clear();
    inputs_of(i, made.inputs);
    for (std::size_t k = 0; k < made.outputs.size(); ++k) {
      if (made.outputs[k] == no_value) continue;
      const auto id = static_cast<std::size_t>(made.outputs[k]);
      const std::string value =
          id < original_.values.size() ? original_.values[id].name : made.name + "." + std::to_string(k);
      made.outputs[k] = graph_.add_value({.name = value_name(value), .shape = {}, .initializer = {}});
    }
    tuples_[i] = made.outputs;
    if (made.outputs.size() == 1) values_[static_cast<std::size_t>(i)] = made.outputs[0];
    graph_.nodes.push_back(std::move(made));
  }

  void emit(std::int32_t i) {
    const std::string& name = op(i);
    ValueId& made = values_[static_cast<std::size_t>(i)];
    if (made != no_value || term(i).children.empty()) return;
    // These come about where they are read.
    if (name == "input" || name == "weight" || name == "transpose" || name == "list") return;
    if (name.starts_with("node ")) return opaque(i);
    if (product(i)) {
      // One that a bias alone reads is made with it.
      for (std::size_t t = static_cast<std::size_t>(i); t < program_.terms.size(); ++t)
        if (program_.terms[t].op == "bias" && readers_[t] > 0 && program_.terms[t].children[1] == i) return;
      made = multiplied(i, i, no_value);
      return;
    }
    ValueId result = no_value;
    if (name.starts_with("output ")) {
      std::size_t index = 0;
      std::from_chars(name.data() + 7, name.data() + name.size(), index);
      result = tuples_.at(child(i, 0)).at(index);
    } else if (name == "bias") {
      result = biased(i);
    } else if (name == "concat") {
      // One that another takes in is made with it.
      for (std::size_t t = static_cast<std::size_t>(i) + 1;
           t < program_.terms.size() && readers_[static_cast<std::size_t>(i)] == 1; ++t)
        if (program_.terms[t].op == "concat" && readers_[t] > 0 &&
            number(static_cast<std::int32_t>(t), 0) == number(i, 0) &&
            (program_.terms[t].children[1] == i || program_.terms[t].children[2] == i))
          return;
      result = concatenated(i);
    } else if (is_part(i)) {
      result = part(i);
    } else if (name == "enlarge") {
      result = enlarged(i);
    } else if (name == "merge") {
      result = with_fewer_groups(i);
    } else if (name == "poolmax" || name == "poolavg") {
      result = pooled(i);
    } else {
      static const std::map<std::string, const char*, std::less<>> plain = {
          {"ewadd", "Add"}, {"ewmul", "Mul"}, {"smul", "Mul"},
          {"relu", "Relu"}, {"tanh", "Tanh"}, {"sigmoid", "Sigmoid"}};
      std::vector<ValueId> inputs;
      for (const std::int32_t c : term(i).children) inputs.push_back(value(c));
      result = node(i, plain.at(name), std::move(inputs));
    }
    values_[static_cast<std::size_t>(i)] = result;
  }

  const Graph& original_;
  const Program& program_;
  Graph graph_;
  std::vector<Value> shapes_;
  std::vector<ValueId> values_;  ///< by term
  std::vector<int> readers_;
  std::vector<Piece> pieces_;
  std::map<std::pair<std::int32_t, std::int64_t>, std::set<std::pair<std::int64_t, std::int64_t>>>
      cuts_;  ///< begin and length
  std::map<std::pair<std::int32_t, std::int64_t>, std::map<std::int64_t, ValueId>> splits_;
  std::map<std::int32_t, std::vector<ValueId>> tuples_;
  std::map<std::string, const Node*> nodes_;
  std::map<std::string, ValueId>
      known_;                    ///< names of values; no_value: one that is no input and no initializer
  std::set<std::string> names_;  ///< of nodes
  int count_ = 0;
};

}  // namespace

Graph graph_of(const Graph& original, const Program& program) {
  return Emitter(original, program).run();
}

Graph folded(const Graph& graph) {
  Graph made = graph;
  // Nodes run by a network of the same graph, one after another: each on what those before it gave.
  trainyard::GraphNetwork network(made);
  std::vector<Node> left;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    std::vector<at::Tensor> inputs;
    bool fixed = node.op != "Dropout" && node.op != "Attention";
    for (const ValueId id : node.inputs) {
      inputs.push_back(id == no_value ? at::Tensor() : made.values[static_cast<std::size_t>(id)].initializer);
      fixed = fixed && (id == no_value || inputs.back().defined());
    }
    if (!fixed) {
      left.push_back(node);
      continue;
    }
    const std::vector<at::Tensor> outputs = network.run_node(i, inputs, {});
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      if (node.outputs[k] == no_value) continue;
      GraphValue& value = made.values[static_cast<std::size_t>(node.outputs[k])];
      value.initializer = outputs[k].detach().contiguous();
      value.shape = outputs[k].sizes().vec();
    }
  }
  made.nodes = std::move(left);
  // Parameters that nobody reads any more are gone, with the values that nobody makes.
  std::set<ValueId> used(made.inputs.begin(), made.inputs.end());
  used.insert(made.outputs.begin(), made.outputs.end());
  for (const Node& node : made.nodes) {
    used.insert(node.inputs.begin(), node.inputs.end());
    used.insert(node.outputs.begin(), node.outputs.end());
  }
  std::vector<ValueId> moved(made.values.size(), no_value);
  std::vector<GraphValue> kept;
  for (std::size_t id = 0; id < made.values.size(); ++id) {
    if (!used.contains(static_cast<ValueId>(id))) continue;
    moved[id] = static_cast<ValueId>(kept.size());
    kept.push_back(std::move(made.values[id]));
  }
  made.values = std::move(kept);
  const auto move = [&](std::vector<ValueId>& ids) {
    for (ValueId& id : ids)
      if (id != no_value) id = moved[static_cast<std::size_t>(id)];
  };
  move(made.inputs);
  move(made.outputs);
  for (Node& node : made.nodes) {
    move(node.inputs);
    move(node.outputs);
  }
  made.infer_shapes();
  return made;
}

}  // namespace tensat
