// The graph of a recurrent cell with many products that can be merged, as the search of NasNet's found it, and rules that merge them.
#pragma once

#include <string>
#include <vector>

#include "plugins/transform/tensat/rewrite.hpp"

namespace recurrent_graph {

using namespace tensat;

/// So many steps of a cell, each of so many pairs of products: of the state and of the step's input.
inline std::vector<ClassId> recurrent(EGraph& graph, int steps, int pairs) {
  const auto node = [&](const std::string& name, std::initializer_list<ClassId> children) {
    return graph.add(graph.symbols.of(name), {children.begin(), children.size()});
  };
  ClassId state = node("h", {});
  for (int step = 0; step < steps; ++step) {
    const ClassId input = node("x" + std::to_string(step), {});
    ClassId product = 0;
    for (int pair = 0; pair < pairs; ++pair) {
      const std::string name = std::to_string(pair);
      const ClassId sum = node(
          "add", {node("mm", {state, node("wh" + name, {})}), node("mm", {input, node("wx" + name, {})})});
      const ClassId gate = node("tanh", {sum});
      product = pair == 0 ? gate : node("mul", {product, gate});
    }
    state = node("relu", {product});
  }
  return {state};
}

inline std::vector<Rule> merging(EGraph& graph) {
  return {parse_rule("shared-input",
                     "(mm ?x ?a) , (mm ?x ?b) => (split0 (mm ?x (cat ?a ?b))) , (split1 (mm ?x (cat ?a ?b)))",
                     graph.symbols),
          parse_rule("shared-weight",
                     "(mm ?x ?a) , (mm ?y ?a) => (top (mm (rows ?x ?y) ?a)) , (bottom (mm (rows ?x ?y) ?a))",
                     graph.symbols),
          parse_rule("comm", "(add ?a ?b) => (add ?b ?a)", graph.symbols),
          parse_rule("sum", "(add (mm ?x ?a) (mm ?y ?b)) => (mm (cat ?x ?y) (rows ?a ?b))", graph.symbols)};
}

/// Of an invented machine: a product costs 1, half of which is its launch.
inline std::vector<double> costs(const EGraph& graph) {
  std::vector<double> made;
  for (NodeId node = 0; node < graph.nodes_made(); ++node) {
    const std::string& name = graph.symbols.name(graph.op(node));
    made.push_back(name == "mm"                                                         ? 1.0
                   : name == "cat" || name == "rows"                                    ? 0.05
                   : name == "add" || name == "mul" || name == "tanh" || name == "relu" ? 0.1
                                                                                        : 0.0);
  }
  return made;
}

}  // namespace recurrent_graph
