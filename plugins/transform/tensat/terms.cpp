#include "terms.hpp"

#include <algorithm>
#include <sstream>

#include <trainyard/error.hpp>
#include <trainyard/helpers/shape_text.hpp>

#include "lib/fnv1a.hpp"

namespace tensat {

using trainyard::Graph;
using trainyard::GraphValue;
using trainyard::no_value;
using trainyard::Node;
using trainyard::ValueId;

std::string name_in(const std::string& op) {
  std::size_t begin = op.find(' ') + 1;
  if (op.starts_with("output ")) begin = op.find(' ', begin) + 1;
  return op.substr(begin, op.rfind('@') - begin);
}

std::string text_of(const Node& node) {
  std::ostringstream text;
  text << node.op << '/' << node.outputs.size();
  for (const auto& [name, attribute] : node.attributes) {
    text << ';' << name << '=';
    std::visit(
        [&](const auto& value) {
          using T = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<T, at::Tensor>)
            text << trainyard::shape_text(value.sizes().vec())
                 << std::string_view(static_cast<const char*>(value.contiguous().const_data_ptr()),
                                     value.nbytes());
          else if constexpr (std::is_same_v<T, std::string> || std::is_arithmetic_v<T>)
            text << value;
          else
            for (const auto& each : value) text << each << ',';
        },
        attribute);
  }
  return text.str();
}

namespace {

using Sizes = std::vector<std::int64_t>;

std::string joined(const Sizes& sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "" : "_") + std::to_string(size);
  return text;
}

bool all_are(const Sizes& list, std::int64_t wanted) {
  return std::ranges::all_of(list, [&](std::int64_t each) { return each == wanted; });
}

/// Nodes that compute nothing: two that are equal are one.
bool is_view(const Node& node) {
  static constexpr std::string_view all[] = {"Cast",    "Flatten",   "Identity", "Reshape",
                                             "Squeeze", "Transpose", "Unsqueeze"};
  return node.outputs.size() == 1 && std::ranges::find(all, node.op) != std::end(all);
}

}  // namespace

std::optional<Sizes> sizes_with_any_batch(const Sizes& shape) {
  if (shape.empty()) return std::nullopt;
  Sizes sizes = shape;
  for (std::int64_t& size : sizes) {
    if (size == 0) return std::nullopt;
    if (size < 0) size *= -any_batch;
  }
  return sizes;
}

Terms::Terms(const Graph& graph) : graph_(&graph), egraph_(&shapes_), classes_(graph.values.size(), -1) {
  for (const Node& node : graph.nodes)
    if (!take(node)) take_opaque(node);
  for (const ValueId id : graph.outputs) roots_.push_back(value(id));
  egraph_.rebuild();
  egraph_.seal_input();
}

ClassId Terms::make(const char* op, std::initializer_list<ClassId> children) {
  return egraph_.add(egraph_.symbols.of(op), std::span(children.begin(), children.size()));
}

bool Terms::is_tensor(ValueId id) const {
  if (id == no_value) return false;
  const GraphValue& value = graph_->values[static_cast<std::size_t>(id)];
  return c10::isFloatingType(value.dtype) && sizes_with_any_batch(value.shape);
}

bool Terms::is_number(ValueId id) const {
  const at::Tensor& its = graph_->values[static_cast<std::size_t>(id)].initializer;
  return its.defined() && its.is_floating_point() && its.numel() == 1 && its.dim() < 2;
}

bool Terms::same_shape(ValueId a, ValueId b) const {
  return graph_->values[static_cast<std::size_t>(a)].shape ==
         graph_->values[static_cast<std::size_t>(b)].shape;
}

ClassId Terms::as_constant(const GraphValue& value) {
  // Equal shapes to reshape to have names of their own in a graph.
  std::string known = value.name;
  if (!value.trainable && !value.initializer.is_floating_point() && value.initializer.numel() <= 64) {
    const at::Tensor plain = value.initializer.contiguous();
    std::string content =
        std::to_string(static_cast<int>(plain.scalar_type())) + trainyard::shape_text(plain.sizes().vec());
    content.append(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
    known = constants_.emplace(content, value.name).first->second;
  }
  return leaf("constant " + known + "@");
}

ClassId Terms::value(ValueId id) {
  if (id == no_value) return leaf("none@");
  std::int64_t& known = classes_[static_cast<std::size_t>(id)];
  if (known >= 0) return static_cast<ClassId>(known);
  const GraphValue& value = graph_->values[static_cast<std::size_t>(id)];
  const auto sizes = sizes_with_any_batch(value.shape);
  if (value.initializer.defined())
    known = value.initializer.is_floating_point() && sizes
                ? make("weight", {leaf(value.name + "@" + joined(*sizes))})
                : as_constant(value);
  else if (sizes)
    known = make("input", {leaf(value.name + "@" + joined(*sizes))});
  else
    known = leaf("given " + value.name + "@");
  return static_cast<ClassId>(known);
}

void Terms::give(ValueId id, ClassId of) {
  classes_[static_cast<std::size_t>(id)] = of;
  values_.emplace(of, graph_->values[static_cast<std::size_t>(id)].name);
}

/// The newest node of a class that a node of the graph has just become.
void Terms::name(const Node& node, ClassId of) {
  for (NodeId each = egraph_.nodes_made(); each-- > 0;)
    if (egraph_.class_of(each) == egraph_.find(of)) {
      names_.emplace(each, node.name);
      return;
    }
}

bool Terms::take(const Node& node) {
  if (!std::ranges::all_of(node.inputs, [&](ValueId id) {
        return id == no_value || is_tensor(id) ||
               graph_->values[static_cast<std::size_t>(id)].initializer.defined();
      }))
    return false;
  if (node.inputs.empty() || !is_tensor(node.inputs[0]) || node.outputs.empty() ||
      !is_tensor(node.outputs[0]))
    return false;
  if (node.op == "Conv") return take_convolution(node);
  if (node.op == "Gemm") return take_gemm(node);
  if (node.op == "MaxPool") return take_pool(node, "poolmax");
  if (node.op == "AveragePool") return take_pool(node, "poolavg");
  if (node.op == "Split") return take_split(node);
  if (node.op == "Concat") return take_concat(node);
  const auto rank = [&](std::size_t input) {
    return graph_->values[static_cast<std::size_t>(node.inputs[input])].shape.size();
  };
  std::optional<ClassId> made;
  for (const auto& [op, term] : {std::pair("Relu", "relu"), {"Tanh", "tanh"}, {"Sigmoid", "sigmoid"}})
    if (node.op == op) made = make(term, {value(node.inputs[0])});
  for (const auto& [op, term] : {std::pair("Add", "ewadd"), {"Mul", "ewmul"}})
    if (node.op == op && node.inputs.size() == 2 && is_tensor(node.inputs[1]) &&
        same_shape(node.inputs[0], node.inputs[1]))
      made = make(term, {value(node.inputs[0]), value(node.inputs[1])});
  if (node.op == "Mul" && !made && node.inputs.size() == 2 && is_number(node.inputs[1]) &&
      same_shape(node.inputs[0], node.outputs[0]))
    made = make("smul", {value(node.inputs[0]), value(node.inputs[1])});
  if (node.op == "MatMul" && is_tensor(node.inputs[1]) && rank(0) == rank(1) &&
      (rank(0) == 2 || rank(0) == 3)) {
    const Sizes &a = graph_->values[static_cast<std::size_t>(node.inputs[0])].shape,
                &b = graph_->values[static_cast<std::size_t>(node.inputs[1])].shape;
    if (rank(0) == 2 || a[0] == b[0]) made = make("matmul", {value(node.inputs[0]), value(node.inputs[1])});
  }
  if (node.op == "Transpose" && (rank(0) == 2 || rank(0) == 3)) {
    const Sizes last = rank(0) == 2 ? Sizes{1, 0} : Sizes{0, 2, 1};
    if (node.integers("perm", rank(0) == 2 ? last : Sizes{2, 1, 0}) == last)
      made = make("transpose", {value(node.inputs[0])});
  }
  if (!made) return false;
  name(node, *made);
  give(node.outputs[0], *made);
  return true;
}

bool Terms::take_convolution(const Node& node) {
  const GraphValue &x = graph_->values[static_cast<std::size_t>(node.inputs[0])],
                   &w = graph_->values[static_cast<std::size_t>(node.inputs[1])];
  if (x.shape.size() != 4 || !is_tensor(node.inputs[1]) || node.text("auto_pad", "NOTSET") != "NOTSET" ||
      !all_are(node.integers("dilations", {1, 1}), 1))
    return false;
  const Sizes pads = node.integers("pads", {0, 0, 0, 0}), strides = node.integers("strides", {1, 1});
  const Sizes same = {(w.shape[2] - 1) / 2, (w.shape[3] - 1) / 2, (w.shape[2] - 1) / 2, (w.shape[3] - 1) / 2};
  const bool valid = all_are(pads, 0);
  if ((!valid && pads != same) || strides.size() != 2) return false;
  // A kernel of one pixel is padded by nothing either way; as "same" it can be enlarged.
  ClassId made = make("conv2d", {number(strides[0]), number(strides[1]), number(pads == same ? 0 : 1),
                                 number(0), value(node.inputs[0]), value(node.inputs[1])});
  if (node.inputs.size() > 2 && node.inputs[2] != no_value)
    made = make("bias", {number(1), made, value(node.inputs[2])});
  name(node, made);
  give(node.outputs[0], made);
  return true;
}

bool Terms::take_gemm(const Node& node) {
  const bool biased = node.inputs.size() > 2 && node.inputs[2] != no_value;
  const Sizes& y = graph_->values[static_cast<std::size_t>(node.outputs[0])].shape;
  if (node.integer("transA", 0) != 0 || node.number("alpha", 1.0) != 1.0 || node.number("beta", 1.0) != 1.0 ||
      !is_tensor(node.inputs[1]))
    return false;
  if (biased && (!is_tensor(node.inputs[2]) ||
                 graph_->values[static_cast<std::size_t>(node.inputs[2])].shape != Sizes{y[1]}))
    return false;
  ClassId weight = value(node.inputs[1]);
  if (node.integer("transB", 0) != 0) weight = make("transpose", {weight});
  ClassId made = make("matmul", {value(node.inputs[0]), weight});
  if (biased) made = make("bias", {number(1), made, value(node.inputs[2])});
  name(node, made);
  give(node.outputs[0], made);
  return true;
}

bool Terms::take_pool(const Node& node, const char* op) {
  const GraphValue& x = graph_->values[static_cast<std::size_t>(node.inputs[0])];
  const Sizes kernel = node.integers("kernel_shape", {}), strides = node.integers("strides", {1, 1}),
              pads = node.integers("pads", {0, 0, 0, 0});
  if (x.shape.size() != 4 || kernel.size() != 2 || strides.size() != 2 ||
      node.text("auto_pad", "NOTSET") != "NOTSET" || node.integer("ceil_mode", 0) != 0 ||
      !all_are(node.integers("dilations", {1, 1}), 1))
    return false;
  const Sizes same = {(kernel[0] - 1) / 2, (kernel[1] - 1) / 2, (kernel[0] - 1) / 2, (kernel[1] - 1) / 2};
  const bool valid = all_are(pads, 0);
  if (!valid && (pads != same || (node.op == "AveragePool" && node.integer("count_include_pad", 0) == 0)))
    return false;
  const ClassId made = make(op, {number(kernel[0]), number(kernel[1]), number(strides[0]), number(strides[1]),
                                 number(valid ? 1 : 0), value(node.inputs[0])});
  name(node, made);
  give(node.outputs[0], made);
  return true;
}

/// Parts are cut off one after another, each as long as a tensor that is there for its length alone.
bool Terms::take_split(const Node& node) {
  const GraphValue& x = graph_->values[static_cast<std::size_t>(node.inputs[0])];
  const auto rank = static_cast<std::int64_t>(x.shape.size());
  const std::int64_t axis = (node.integer("axis", 0) + rank) % rank;
  std::int64_t left = x.shape[static_cast<std::size_t>(axis)];
  if (left < 0 || std::ranges::find(node.outputs, no_value) != node.outputs.end()) return false;
  ClassId rest = value(node.inputs[0]);
  const auto length = [&](std::int64_t of) { return make("weight", {leaf("length@" + std::to_string(of))}); };
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    const std::int64_t size =
        graph_->values[static_cast<std::size_t>(node.outputs[i])].shape[static_cast<std::size_t>(axis)];
    if (size < 1) return false;
    left -= size;
    const bool last = i + 1 == node.outputs.size();
    give(node.outputs[i], last ? rest : make("head", {number(axis), rest, length(size), number(0)}));
    if (!last) rest = make("tail", {number(axis), rest, length(left), number(0)});
  }
  return true;
}

bool Terms::take_concat(const Node& node) {
  if (node.inputs.size() < 2 || !std::ranges::all_of(node.inputs, [&](ValueId id) { return is_tensor(id); }))
    return false;
  const auto rank =
      static_cast<std::int64_t>(graph_->values[static_cast<std::size_t>(node.inputs[0])].shape.size());
  const ClassId axis = number((node.integer("axis", 0) + rank) % rank);
  ClassId made = value(node.inputs.back());
  for (std::size_t i = node.inputs.size() - 1; i-- > 0;)
    made = make("concat", {axis, value(node.inputs[i]), made});
  name(node, made);
  give(node.outputs[0], made);
  return true;
}

void Terms::take_opaque(const Node& node) {
  opaque_.push_back(node.name + " (" + node.op + ")");
  std::vector<ClassId> children;
  for (const ValueId id : node.inputs) children.push_back(value(id));
  while (children.size() > max_arity - 1) {
    const ClassId last = children.back();
    children.pop_back();
    children.back() = make("list", {children.back(), last});
  }
  std::string view;
  if (is_view(node)) {
    view = text_of(node);
    for (const ClassId child : children) view += "|" + std::to_string(child);
    if (const auto known = views_.find(view); known != views_.end())
      return give(node.outputs[0], known->second);
  }
  const auto sizes_of = [&](ValueId id) {
    const auto sizes = sizes_with_any_batch(graph_->values[static_cast<std::size_t>(id)].shape);
    return sizes ? joined(*sizes) : std::string();
  };
  const bool alone = node.outputs.size() == 1;
  const ClassId made = egraph_.add(
      egraph_.symbols.of("node " + node.name + "@" + (alone ? sizes_of(node.outputs[0]) : "")), children);
  name(node, made);
  if (alone) give(node.outputs[0], made);
  for (std::size_t i = 0; !alone && i < node.outputs.size(); ++i) {
    if (node.outputs[i] == no_value) continue;
    const std::string op = "output " + std::to_string(i) + " " + node.name + "@" + sizes_of(node.outputs[i]);
    give(node.outputs[i], make(op.c_str(), {made}));
  }
  if (!view.empty()) views_.emplace(view, made);
}

Program Terms::program(const Extractable& extractable, const Selection& selection) const {
  Program made;
  std::map<ClassId, std::int32_t> numbers;
  std::map<ClassId, std::string> values;
  for (const auto& [of, name] : values_) values.emplace(egraph_.find(of), name);
  for (const std::uint32_t of : selection.order) {
    const NodeId node = extractable.nodes[static_cast<std::size_t>(selection.choice[of])];
    Term term{.op = egraph_.symbols.name(egraph_.op(node)), .children = {}, .node = {}, .value = {}};
    for (const ClassId child : egraph_.children(node))
      term.children.push_back(numbers.at(egraph_.find(child)));
    if (const auto known = names_.find(node); known != names_.end()) term.node = known->second;
    if (const auto known = values.find(extractable.classes[of]); known != values.end())
      term.value = known->second;
    numbers[extractable.classes[of]] = static_cast<std::int32_t>(made.terms.size());
    made.terms.push_back(std::move(term));
  }
  for (const std::uint32_t root : extractable.problem.roots)
    made.outputs.push_back(numbers.at(extractable.classes[root]));
  return made;
}

std::string hash_of(const Graph& graph) {
  std::ostringstream text;
  const auto name = [&](ValueId id) {
    return id == no_value ? std::string("-") : graph.values[static_cast<std::size_t>(id)].name;
  };
  for (const GraphValue& value : graph.values) {
    if (!value.initializer.defined()) continue;
    text << value.name << trainyard::shape_text(value.shape) << static_cast<int>(value.dtype)
         << value.trainable;
    if (!value.trainable && !value.initializer.is_floating_point() && value.initializer.numel() <= 64)
      text << std::string_view(static_cast<const char*>(value.initializer.contiguous().const_data_ptr()),
                               value.initializer.nbytes());
    text << '\n';
  }
  for (const ValueId id : graph.inputs)
    text << name(id) << trainyard::shape_text(graph.values[static_cast<std::size_t>(id)].shape) << '\n';
  for (const Node& node : graph.nodes) {
    text << node.name << ' ' << text_of(node);
    for (const ValueId id : node.inputs) text << ' ' << name(id);
    text << " ->";
    for (const ValueId id : node.outputs) text << ' ' << name(id);
    text << '\n';
  }
  for (const ValueId id : graph.outputs) text << name(id) << '\n';
  return trainyard::lib::Fnv1a().update(text.str()).hex();
}

}  // namespace tensat
