#include "network_rules.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "lib/fnv1a.hpp"

namespace tensat {
namespace {

constexpr TensorRule of_networks[] = {
    {"relu of head", "(relu (head ?i ?m ?v ?k)) => (head ?i (relu ?m) ?v ?k)", ""},
    {"relu of tail", "(relu (tail ?i ?m ?v ?k)) => (tail ?i (relu ?m) ?v ?k)", ""},
    {"tanh of head", "(tanh (head ?i ?m ?v ?k)) => (head ?i (tanh ?m) ?v ?k)", ""},
    {"tanh of tail", "(tanh (tail ?i ?m ?v ?k)) => (tail ?i (tanh ?m) ?v ?k)", ""},
    {"sigmoid of head", "(sigmoid (head ?i ?m ?v ?k)) => (head ?i (sigmoid ?m) ?v ?k)", ""},
    {"sigmoid of tail", "(sigmoid (tail ?i ?m ?v ?k)) => (tail ?i (sigmoid ?m) ?v ?k)", ""},
    {"add of heads", "(ewadd (head ?i ?m ?v ?k) (head ?i ?n ?w ?l)) => (head ?i (ewadd ?m ?n) ?v ?k)", ""},
    {"add of tails", "(ewadd (tail ?i ?m ?v ?k) (tail ?i ?n ?w ?l)) => (tail ?i (ewadd ?m ?n) ?v ?k)", ""},
    {"mul of heads", "(ewmul (head ?i ?m ?v ?k) (head ?i ?n ?w ?l)) => (head ?i (ewmul ?m ?n) ?v ?k)", ""},
    {"mul of tails", "(ewmul (tail ?i ?m ?v ?k) (tail ?i ?n ?w ?l)) => (tail ?i (ewmul ?m ?n) ?v ?k)", ""},
    {"head and tail", "(concat ?i (head ?i ?m ?v ?k) (tail ?i ?m ?w ?l)) => ?m", ""},
    {"concat of transposes", "(concat 1 (transpose ?a) (transpose ?b)) => (transpose (concat 0 ?a ?b))", ""},
    {"concat of transposes, rows", "(concat 0 (transpose ?a) (transpose ?b)) => (transpose (concat 1 ?a ?b))",
     ""},
    {"bias of add", "(bias ?i (ewadd ?x ?y) ?b) => (ewadd (bias ?i ?x ?b) ?y)", ""},
    {"add of bias", "(ewadd (bias ?i ?x ?b) ?y) => (bias ?i (ewadd ?x ?y) ?b)", ""},
    {"bias of bias", "(bias ?i (bias ?i ?x ?b) ?c) => (bias ?i ?x (ewadd ?b ?c))", ""},
    {"smul of bias", "(smul (bias ?i ?x ?b) ?z) => (bias ?i (smul ?x ?z) (smul ?b ?z))", ""},
    {"bias of smul", "(bias ?i (smul ?x ?z) (smul ?b ?z)) => (smul (bias ?i ?x ?b) ?z)", ""},
    {"smul of head", "(smul (head ?i ?m ?v ?k) ?z) => (head ?i (smul ?m ?z) ?v ?k)", ""},
    {"smul of tail", "(smul (tail ?i ?m ?v ?k) ?z) => (tail ?i (smul ?m ?z) ?v ?k)", ""},
};

/// These cut along the dimension of samples.
constexpr std::string_view of_batches[] = {"matmuls by a weight", "convs by a weight",
                                           "relu and conv by a weight"};

/// Of the table, these carry on what was merged.
constexpr std::string_view of_merging[] = {"head of concat", "tail of concat", "transpose twice",
                                           "convs of an input, enlarged"};

/// A product of the graph, perhaps with a bias.
struct Product {
  NodeId node = 0;  ///< the product
  ClassId out = 0;  ///< with its bias
  ClassId weight = 0;
  ClassId bias = 0;
};

std::vector<Rule> rules_for(EGraph& graph, std::span<const TensorRule> rules) {
  std::vector<Rule> made;
  for (const TensorRule& each : rules) made.push_back(parse_rule(each.name, each.text, graph.symbols));
  return made;
}

class Merger {
 public:
  explicit Merger(Terms& terms) : terms_(terms), graph_(terms.egraph()) {}

  std::size_t run(std::size_t most) {
    collect();
    std::size_t count = 0;
    for (auto& [key, group] : groups_) {
      std::ranges::sort(group, {}, &Product::node);
      for (std::size_t begin = 0; begin + 1 < group.size(); begin += most, ++count)
        merge(std::span(group).subspan(begin, std::min(most, group.size() - begin)), !key.second.empty());
    }
    graph_.rebuild();
    return count;
  }

 private:
  using Key = std::pair<std::vector<ClassId>, std::string>;  // what is shared; "bias" where there is one

  bool is(NodeId node, const char* op) const { return graph_.symbols.name(graph_.op(node)) == op; }
  const Value& of(ClassId each) const { return terms_.shapes().of(graph_, each); }
  ClassId make(const char* op, std::initializer_list<ClassId> children) {
    return graph_.add(graph_.symbols.of(op), std::span(children.begin(), children.size()));
  }
  ClassId number(std::int64_t value) { return graph_.add(graph_.symbols.of(std::to_string(value)), {}); }

  void collect() {
    for (NodeId node = 0; node < graph_.input_nodes(); ++node) {
      if (!graph_.alive(node)) continue;
      const auto children = graph_.children(node);
      const bool matrix = is(node, "matmul"), image = is(node, "conv2d");
      if (!matrix && !image) continue;
      const ClassId weight = children[matrix ? 1 : 5], x = children[matrix ? 0 : 4];
      const Value& w = of(weight);
      if (!w.weights || of(x).weights || w.shape.size() != (matrix ? 2U : 4U)) continue;
      if (image && of(x).shape[1] != w.shape[1]) continue;  // of groups
      std::vector<ClassId> shared(children.begin(), children.end());
      shared[matrix ? 1 : 5] = matrix ? 0 : static_cast<ClassId>(w.shape[2] * 65536 + w.shape[3]);
      const ClassId own = graph_.class_of(node);
      bool biased = false;
      std::optional<Product> with;
      graph_.for_parents(own, [&](NodeId parent) {
        if (parent >= graph_.input_nodes() || !is(parent, "bias") ||
            graph_.find(graph_.children(parent)[1]) != own)
          return;
        if (of(graph_.children(parent)[0]).number != 1 || !of(graph_.children(parent)[2]).weights) return;
        biased = true;
        with = Product{node, graph_.class_of(parent), weight, graph_.children(parent)[2]};
      });
      auto& group = groups_[Key(std::move(shared), biased ? "bias" : "")];
      const Product product = biased ? *with : Product{node, own, weight, 0};
      if (std::ranges::none_of(group, [&](const Product& each) {
            return each.weight == product.weight && each.bias == product.bias;
          }))
        group.push_back(product);
    }
  }

  /// What a matrix is the transpose of, as the weights of linear layers are.
  std::optional<ClassId> turned(ClassId weight) const {
    for (NodeId node = 0; node < graph_.input_nodes(); ++node)
      if (graph_.alive(node) && is(node, "transpose") && graph_.class_of(node) == graph_.find(weight))
        return graph_.children(node)[0];
    return std::nullopt;
  }

  void merge(std::span<const Product> group, bool biased) {
    const NodeId first = group.front().node;
    const bool matrix = is(first, "matmul");
    const std::vector<ClassId> shared(graph_.children(first).begin(), graph_.children(first).end());
    // All weights behind the one at hand, joined.
    std::vector<ClassId> joined(group.size());
    joined.back() = group.back().weight;
    constexpr ClassId nothing = 0xffffffff;
    ClassId rows = matrix ? turned(group.back().weight).value_or(nothing) : nothing;
    std::vector<ClassId> biases(group.size());
    biases.back() = group.back().bias;
    for (std::size_t i = group.size() - 1; i-- > 0;) {
      const ClassId own = rows != nothing ? turned(group[i].weight).value_or(nothing) : nothing;
      if (own != nothing) {
        rows = make("concat", {number(0), own, rows});
        joined[i] = make("transpose", {rows});
      } else {
        rows = nothing;
        joined[i] = make("concat", {number(matrix ? 1 : 0), group[i].weight, joined[i + 1]});
      }
      if (biased) biases[i] = make("concat", {number(0), group[i].bias, biases[i + 1]});
    }
    const auto product = [&](std::size_t i) {
      std::vector<ClassId> children = shared;
      children[matrix ? 1 : 5] = joined[i];
      const ClassId made = graph_.add(graph_.op(first), children);
      return biased ? make("bias", {number(1), made, biases[i]}) : made;
    };
    ClassId whole = product(0);
    for (std::size_t i = 0; i + 1 < group.size(); ++i) {
      graph_.unite(group[i].out, make("head", {number(1), whole, group[i].weight, number(matrix ? 1 : 0)}));
      const ClassId rest = make("tail", {number(1), whole, joined[i + 1], number(matrix ? 1 : 0)});
      graph_.unite(i + 2 == group.size() ? group[i + 1].out : product(i + 1), rest);
      whole = rest;
    }
  }

  Terms& terms_;
  EGraph& graph_;
  std::map<Key, std::vector<Product>> groups_;
};

}  // namespace

std::span<const TensorRule> network_rules() {
  return of_networks;
}

std::vector<Rule> all_rules(EGraph& graph, const Shapes& shapes) {
  std::vector<Rule> rules = rules_of(graph, shapes);
  std::erase_if(rules, [](const Rule& each) {
    return std::ranges::find(of_batches, each.name) != std::end(of_batches);
  });
  for (Rule& each : rules_for(graph, of_networks)) rules.push_back(std::move(each));
  return rules;
}

std::vector<Rule> merging_rules(EGraph& graph, const Shapes& shapes) {
  std::vector<Rule> rules = rules_of(graph, shapes);
  std::erase_if(rules, [](const Rule& each) {
    return std::ranges::find(of_merging, each.name) == std::end(of_merging);
  });
  for (Rule& each : rules_for(graph, of_networks))
    if (each.name.find("bias") == std::string::npos) rules.push_back(std::move(each));
  return rules;
}

std::size_t merge_groups(Terms& terms, std::size_t most) {
  return Merger(terms).run(most);
}

std::size_t ban_cuts_of_batches(Terms& terms) {
  EGraph& graph = terms.egraph();
  std::size_t count = 0;
  for (NodeId node = graph.input_nodes(); node < graph.nodes_made(); ++node) {
    if (!graph.alive(node) || graph.blacklisted(node)) continue;
    const std::string& op = graph.symbols.name(graph.op(node));
    if (op != "head" && op != "tail") continue;
    const auto axis = static_cast<std::size_t>(terms.shapes().of(graph, graph.children(node)[0]).number);
    if (terms.shapes().of(graph, graph.children(node)[1]).shape[axis] % any_batch != 0 &&
        terms.shapes().of(graph, graph.class_of(node)).shape[axis] % any_batch != 0)
      continue;
    graph.blacklist(node);
    ++count;
  }
  return count;
}

std::string rules_hash() {
  trainyard::lib::Fnv1a hash;
  hash.update("merged groups 1");
  for (const auto& rules : {tensor_rules(), network_rules()})
    for (const TensorRule& each : rules) hash.update(each.name).update(each.text).update(each.condition);
  return hash.hex();
}

}  // namespace tensat
