#include "prices.hpp"

#include <algorithm>
#include <limits>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "lib/fnv1a.hpp"
#include "stopwatch.hpp"

namespace tensat {

using trainyard::Graph;
using trainyard::GraphValue;
using trainyard::no_value;
using trainyard::ValueId;

namespace {

constexpr double most_seconds = 0.05;  // for a price, from the fourth round on
constexpr double not_measured = 1.0;   // seconds: no graph that has it is cheaper than the input

std::string sizes_text(const std::vector<std::int64_t>& sizes) {
  std::string text;
  for (const std::int64_t size : sizes) {
    if (!text.empty()) text += '_';
    text += size % any_batch == 0 ? (size == any_batch ? "N" : std::to_string(size / any_batch) + "N")
                                  : std::to_string(size);
  }
  return text;
}

std::vector<std::int64_t> shape_of(std::vector<std::int64_t> sizes) {
  for (std::int64_t& size : sizes)
    if (size % any_batch == 0) size = -(size / any_batch);
  return sizes;
}

}  // namespace

/// One operator with tensors of its own.
struct Prices::Small {
  Program program;
  Graph graph;                     ///< inputs, weights, constants and nodes
  std::vector<std::string> wants;  ///< inputs that get a gradient
  std::vector<at::Tensor> unfilled;
  std::string key;

  std::int32_t add(std::string op, std::vector<std::int32_t> children = {}) {
    program.terms.push_back({std::move(op), std::move(children), {}, {}});
    return static_cast<std::int32_t>(program.terms.size() - 1);
  }
};

Prices::Prices(const Graph& graph, const Terms& terms, Way way, PriceTable& table, std::function<bool()> stop)
    : graph_(graph),
      terms_(terms),
      way_(std::move(way)),
      table_(table),
      stop_(std::move(stop)),
      wants_(terms.egraph().classes_made(), -1) {
  // Of the oldest nodes, whose children are older: one walk is enough.
  const EGraph& e = terms.egraph();
  for (NodeId node = 0; node < e.nodes_made(); ++node) {
    if (!e.alive(node)) continue;
    signed char& wants = wants_[e.class_of(node)];
    if (wants > 0) continue;
    const auto children = e.children(node);
    const std::string& op = e.symbols.name(e.op(node));
    bool found = false;
    if (op == "weight") {
      const std::string& leaf = e.symbols.name(e.op(*oldest(children[0])));
      const ValueId id = graph.find_value(leaf.substr(0, leaf.rfind('@')));
      found = id != no_value && graph.values[static_cast<std::size_t>(id)].trainable;
    } else if (op != "head" && op != "tail") {
      for (const ClassId child : children) found = found || wants_[e.find(child)] > 0;
    } else {
      found = wants_[e.find(children[1])] > 0;
    }
    wants = found ? 1 : std::max<signed char>(wants, 0);
  }
}

bool Prices::is(NodeId node, const char* op) const {
  return terms_.egraph().symbols.name(terms_.egraph().op(node)) == op;
}

std::optional<NodeId> Prices::oldest(ClassId of, const char* op) const {
  const EGraph& e = terms_.egraph();
  if (by_class_.empty()) {
    by_class_.resize(e.classes_made());
    for (NodeId node = 0; node < e.nodes_made(); ++node)
      if (e.alive(node) && !e.blacklisted(node)) by_class_[e.class_of(node)].push_back(node);
  }
  for (const NodeId node : by_class_[e.find(of)])
    if (op == nullptr || is(node, op)) return node;
  return std::nullopt;
}

bool Prices::wants_gradient(ClassId of) const {
  return wants_[terms_.egraph().find(of)] > 0;
}

std::int32_t Prices::constant(Small& small, ClassId of) const {
  const EGraph& e = terms_.egraph();
  const NodeId node = *oldest(of);
  const std::string& op = e.symbols.name(e.op(node));
  if (op.starts_with("constant ")) {
    const std::string name = name_in(op);
    if (small.graph.find_value(name) == no_value)
      small.graph.add_value(graph_.values[static_cast<std::size_t>(graph_.find_value(name))]);
  }
  std::vector<std::int32_t> children;
  for (const ClassId each : e.children(node)) children.push_back(child(small, each, false));
  return small.add(op, std::move(children));
}

std::int32_t Prices::child(Small& small, ClassId of, bool as_second_factor) const {
  const EGraph& e = terms_.egraph();
  const Value& value = terms_.shapes().of(e, of);
  if (value.kind == Value::Kind::number) {
    small.key += " " + std::to_string(value.number);
    return small.add(std::to_string(value.number));
  }
  if (value.kind == Value::Kind::none) return constant(small, of);
  if (as_second_factor && value.shape.size() == 2)
    if (const auto turned = oldest(of, "transpose")) {
      small.key += " t";
      const std::int32_t below = child(small, e.children(*turned)[0], false);
      return small.add("transpose", {below});
    }
  const std::string name = "t" + std::to_string(small.graph.values.size());
  const std::string sizes = sizes_text(value.shape);
  small.key += " " + sizes + (value.weights ? "w" : wants_gradient(of) ? "" : "i");
  GraphValue made{.name = name, .shape = shape_of(value.shape), .initializer = {}};
  if (value.weights) {
    // What a layer has beside its weights, as running variances are, has to be what it can be.
    ValueId known = no_value;
    if (const auto leaf = oldest(of, "weight")) {
      const std::string& text = e.symbols.name(e.op(*oldest(e.children(*leaf)[0])));
      known = graph_.find_value(text.substr(0, text.rfind('@')));
    }
    if (known != no_value) {
      made = graph_.values[static_cast<std::size_t>(known)];
      made.name = name;
    } else {
      made.initializer = at::empty(value.shape);  // filled where it is measured
      small.unfilled.push_back(made.initializer);
      made.trainable = wants_gradient(of);
    }
    small.graph.add_value(std::move(made));
  } else {
    const NodeId node = *oldest(of);
    const std::string& op = e.symbols.name(e.op(node));
    // Tokens are integers.
    for (const GraphValue& each : graph_.values)
      if (op == "input" && e.symbols.name(e.op(*oldest(e.children(node)[0]))).starts_with(each.name + "@"))
        made.dtype = each.dtype;
    if (const auto original = dtype_of(op)) made.dtype = *original;
    if (made.dtype == at::kFloat && wants_gradient(of)) small.wants.push_back(name);
    small.graph.inputs.push_back(small.graph.add_value(std::move(made)));
  }
  std::string leaf = name + "@";
  for (std::size_t i = 0; i < value.shape.size(); ++i)
    leaf += (i > 0 ? "_" : "") + std::to_string(value.shape[i]);
  const std::int32_t its = small.add(std::move(leaf));
  return small.add(value.weights ? "weight" : "input", {its});
}

/// The type of what a node that is a symbol makes.
std::optional<at::ScalarType> Prices::dtype_of(const std::string& op) const {
  if (!op.starts_with("node ") && !op.starts_with("output ")) return std::nullopt;
  const std::size_t index = op.starts_with("output ") ? std::stoul(op.substr(7)) : 0;
  const std::string name = name_in(op);
  for (const trainyard::Node& node : graph_.nodes)
    if (node.name == name) return graph_.values[static_cast<std::size_t>(node.outputs[index])].dtype;
  return std::nullopt;
}

double Prices::measure(const Small& small, const std::string& key) {
  if (const auto known = table_.find(key); known != table_.end()) return known->second;
  if (is_new_ && stop_ && stop_()) return not_measured;
  for (const at::Tensor& each : small.unfilled) each.fill_(0.01);
  // Three times beside each other, each on tensors of its own.
  Small many;
  many.graph.nodes = small.graph.nodes;
  const int copies = way_.compiled ? 1 : 3;
  for (int copy = 0; copy < copies; ++copy) {
    const std::string suffix = "c" + std::to_string(copy);
    std::vector<ValueId> moved;
    for (std::size_t id = 0; id < small.graph.values.size(); ++id) {
      const GraphValue& value = small.graph.values[id];
      const bool fresh =
          value.name.starts_with("t") && std::ranges::any_of(small.program.terms, [&](const Term& each) {
            return each.op.starts_with(value.name + "@");
          });
      if (!fresh && copy > 0) continue;
      GraphValue its = value;
      if (fresh) its.name += suffix;
      const ValueId made = many.graph.add_value(std::move(its));
      if (std::ranges::find(small.graph.inputs, static_cast<ValueId>(id)) != small.graph.inputs.end())
        many.graph.inputs.push_back(made);
    }
    for (const std::string& each : small.wants) many.wants.push_back(each + suffix);
    const auto offset = static_cast<std::int32_t>(many.program.terms.size());
    for (Term term : small.program.terms) {
      for (std::int32_t& each : term.children) each += offset;
      if (const std::size_t at = term.op.rfind('@');
          term.children.empty() && at != std::string::npos && at + 1 < term.op.size() &&
          small.graph.find_value(term.op.substr(0, at)) != no_value)
        term.op.insert(at, suffix);
      many.program.terms.push_back(std::move(term));
    }
    for (const std::int32_t output : small.program.outputs) many.program.outputs.push_back(output + offset);
  }
  double price = 0.0;
  ++measured_;
  const auto begin = Clock::now();
  const auto enough = [&] { return seconds_since(begin) > most_seconds; };
  const auto passes_of = [&](const Small& of) {
    return make_pass(graph_of(of.graph, of.program), way_, of.wants);
  };
  if (way_.compiled) {
    const auto pass = passes_of(many);
    Pass* const all[] = {pass.get()};
    price = std::max(0.0, seconds_of(all, 7, 5e-4, enough).front().least - overhead());
  } else {
    Small single = many;
    single.program.outputs.resize(small.program.outputs.size());
    const auto alone = passes_of(single), together = passes_of(many);
    Pass* const all[] = {alone.get(), together.get()};
    const std::vector<Seconds> found = seconds_of(all, 7, 5e-4, enough);
    price = std::max(0.0, (found[1].least - found[0].least) / (copies - 1));
  }
  table_[key] = price;
  return price;
}

/// What a compiled pass costs beside its operators.
double Prices::overhead() {
  if (overhead_) return *overhead_;
  Small small;
  GraphValue value{.name = "t0", .shape = {trainyard::batch_dim, 1}, .initializer = {}};
  GraphValue weight{.name = "t1", .shape = {1, 1}, .initializer = at::zeros({1, 1}), .trainable = true};
  small.graph.inputs.push_back(small.graph.add_value(value));
  small.graph.add_value(weight);
  const std::int32_t x = small.add("input", {small.add("t0@" + std::to_string(any_batch) + "_1")});
  const std::int32_t w = small.add("weight", {small.add("t1@1_1")});
  small.program.outputs = {small.add("matmul", {x, small.add("transpose", {w})})};
  const auto pass = make_pass(graph_of(small.graph, small.program), way_);
  Pass* const all[] = {pass.get()};
  overhead_ = seconds_of(all, 9, 5e-4).front().least;
  return *overhead_;
}

/// What one more part adds to weights that lie behind each other and are joined by a view.
double Prices::joined() {
  const std::string key = "join";
  if (const auto known = table_.find(key); known != table_.end()) return known->second;
  const auto of = [&](int parts) {
    Small small;
    std::vector<std::int32_t> terms;
    const at::Tensor whole = at::zeros({parts * 8, 8});
    for (int i = 0; i < parts; ++i) {
      const std::string name = "t" + std::to_string(i);
      small.graph.add_value({.name = name,
                             .shape = {8, 8},
                             .initializer = whole.narrow(0, i * 8, 8).clone(),
                             .trainable = true});
      terms.push_back(small.add("weight", {small.add(name + "@8_8")}));
    }
    std::int32_t all = terms.back();
    for (std::size_t i = terms.size() - 1; i-- > 0;)
      all = small.add("concat", {small.add("0"), terms[i], all});
    small.program.outputs = {all};
    return graph_of(small.graph, small.program);
  };
  Way way = way_;
  way.compiled = false;
  const auto few = make_pass(of(2), way), many = make_pass(of(10), way);
  Pass* const passes[] = {few.get(), many.get()};
  const std::vector<Seconds> found = seconds_of(passes, 7, 5e-4);
  return table_[key] = std::max(0.0, (found[1].least - found[0].least) / 8);
}

/// What one more piece of a tensor that is cut takes, which is a view.
double Prices::cut() {
  const std::string key = way_.text() + " cut";
  if (const auto known = table_.find(key); known != table_.end()) return known->second;
  const auto of = [&](int parts) {
    Graph graph;
    std::vector<ValueId> cuts;
    GraphValue input{.name = "x", .shape = {trainyard::batch_dim, 80}, .initializer = {}};
    graph.inputs.push_back(graph.add_value(std::move(input)));
    for (int i = 0; i < parts; ++i)
      cuts.push_back(graph.add_value({.name = "y" + std::to_string(i), .shape = {}, .initializer = {}}));
    graph.outputs = cuts;
    graph.nodes.push_back({.op = "Split",
                           .name = "cut",
                           .inputs = graph.inputs,
                           .outputs = cuts,
                           .attributes = {{"axis", std::int64_t{1}}}});
    graph.infer_shapes();
    return graph;
  };
  Way way = way_;
  way.compiled = false;
  way.samples = 1;
  const auto few = make_pass(of(2), way, {"x"}), many = make_pass(of(10), way, {"x"});
  Pass* const passes[] = {few.get(), many.get()};
  const std::vector<Seconds> found = seconds_of(passes, 7, 5e-4);
  return table_[key] = std::max(0.0, (found[1].least - found[0].least) / 8);
}

double Prices::of(NodeId node) {
  const EGraph& e = terms_.egraph();
  const std::string& op = e.symbols.name(e.op(node));
  const auto children = e.children(node);
  static constexpr std::string_view free[] = {"input", "weight", "list", "transpose"};
  if (children.empty() || std::ranges::find(free, op) != std::end(free) || op.starts_with("output "))
    return 0.0;
  const Value& value = terms_.shapes().of(e, e.class_of(node));
  is_new_ = node >= e.input_nodes();
  if (value.weights && !way_.training) return 0.0;  // computed once
  if (op == "concat" && value.weights && terms_.shapes().of(e, children[0]).number == 0) return joined();
  if (op == "head" || op == "tail") return cut();
  const auto build = [&](NodeId of, std::optional<NodeId> below) {
    Small small;
    std::vector<std::int32_t> terms;
    const std::string& name = e.symbols.name(e.op(of));
    small.key = way_.text() + (name.starts_with("node ") ? " " + node_text(name) : " " + name);
    const auto its = e.children(of);
    for (std::size_t i = 0; i < its.size(); ++i) {
      if (below && i == 1) {
        std::vector<std::int32_t> inner;
        small.key += " (" + e.symbols.name(e.op(*below));
        const auto inputs = e.children(*below);
        for (std::size_t k = 0; k < inputs.size(); ++k)
          inner.push_back(child(small, inputs[k], is(*below, "matmul") && k == 1));
        small.key += ")";
        terms.push_back(small.add(e.symbols.name(e.op(*below)), std::move(inner)));
        continue;
      }
      terms.push_back(child(small, its[i], name == "matmul" && i == 1));
    }
    if (name.starts_with("node "))
      for (const trainyard::Node& each : graph_.nodes)
        if (name.starts_with("node " + each.name + "@")) {
          trainyard::Node copy = each;
          for (ValueId& id : copy.outputs)
            if (id != no_value)
              id = std::numeric_limits<ValueId>::max();  // a value that this graph does not have
          small.graph.nodes.push_back(std::move(copy));
        }
    small.program.outputs = {small.add(name, std::move(terms))};
    small.key += " x" + std::to_string(way_.samples);
    return small;
  };
  try {
    if (op == "bias") {
      // Most often it comes with the product, and costs what the two cost more.
      std::optional<NodeId> below = oldest(children[1], "matmul");
      if (!below) below = oldest(children[1], "conv2d");
      if (below) {
        Small both = build(node, below), alone = build(*below, std::nullopt);
        return std::max(0.0, measure(both, both.key) - measure(alone, alone.key));
      }
    }
    Small small = build(node, std::nullopt);
    if (op.starts_with("node ") && value.kind == Value::Kind::none) return 0.0;  // all graphs have them
    return measure(small, small.key);
  } catch (const std::exception&) {
    // A symbol that cannot be computed by itself is in all graphs; anything else is not to be chosen.
    return op.starts_with("node ") ? 0.0 : not_measured;
  }
}

/// What a node that is a symbol is, without its name.
std::string Prices::node_text(const std::string& op) const {
  const std::string name = name_in(op);
  for (const trainyard::Node& node : graph_.nodes)
    if (node.name == name) return node.op + "," + trainyard::lib::Fnv1a().update(text_of(node)).hex();
  return op;
}

std::vector<double> Prices::all() {
  const EGraph& e = terms_.egraph();
  std::vector<double> costs(e.nodes_made(), 0.0);
  for (NodeId node = 0; node < e.nodes_made(); ++node)
    if (e.alive(node) && !e.blacklisted(node)) costs[node] = of(node);
  return costs;
}

}  // namespace tensat
