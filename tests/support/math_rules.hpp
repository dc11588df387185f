// Rules of arithmetic, derivatives and integrals that e-graphs are compared by: those of egg's own tests (egg/tests/math.rs, MIT),
// with constants that are folded. They are not all true: x / x is 1 where x is not known to be 0.
#pragma once

#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "plugins/transform/tensat/rewrite.hpp"

namespace math_rules {

using namespace tensat;

/// What a class is worth, and whether it is a symbol as x.
class Constants : public Analysis {
 public:
  struct Data {
    std::optional<double> value;
    bool symbol = false;
    bool operator==(const Data&) const = default;
  };

  explicit Constants(bool fold) : fold_(fold) {}

  const Data& of(const EGraph& graph, ClassId each) const { return data_[graph.find(each)]; }

  bool make(const EGraph& graph, NodeId node, ClassId of) override {
    if (data_.size() <= of) {
      data_.resize(of + std::size_t{1});
      if (fold_) {
        nodes_.resize(of + std::size_t{1});
        nodes_[of].push_back(node);
      }
    }
    return join(data_[of], worth(graph, node));
  }

  bool merge(ClassId into, ClassId from) override {
    const Data before = data_[into];
    join(data_[into], data_[from]);
    if (fold_) nodes_[into].insert(nodes_[into].end(), nodes_[from].begin(), nodes_[from].end());
    return data_[into] != before || data_[into] != data_[from];
  }

  void modify(EGraph& graph, ClassId of) override {
    const std::optional<double> value = data_[graph.find(of)].value;
    if (!value || !fold_) return;
    // As egg's has it, what is worth a number is no longer rewritten.
    for (const NodeId node : nodes_[graph.find(of)])
      if (!graph.children(node).empty()) graph.blacklist(node);
    char text[32];
    const auto end = std::to_chars(std::begin(text), std::end(text), *value).ptr;
    graph.unite(of, graph.add(graph.symbols.of({text, static_cast<std::size_t>(end - text)}), {}));
  }

 private:
  bool join(Data& into, const Data& from) const {
    const Data before = into;
    into.symbol = into.symbol || from.symbol;
    if (into.value && from.value &&
        std::abs(*into.value - *from.value) > 1e-9 * (1.0 + std::abs(*into.value)))
      throw std::logic_error("two numbers became equal");
    if (!into.value) into.value = from.value;
    return into != before;
  }

  Data worth(const EGraph& graph, NodeId node) const {
    const std::string& name = graph.symbols.name(graph.op(node));
    const auto children = graph.children(node);
    if (children.empty()) {
      double number = 0.0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
      if (error == std::errc{} && end == name.data() + name.size()) return {.value = number};
      return {.symbol = true};
    }
    if (!fold_ || children.size() != 2 || name.size() != 1) return {};
    const auto a = of(graph, children[0]).value, b = of(graph, children[1]).value;
    if (!a || !b) return {};
    switch (name[0]) {
      case '+': return {.value = *a + *b};
      case '-': return {.value = *a - *b};
      case '*': return {.value = *a * *b};
      case '/': return *b != 0.0 ? Data{.value = *a / *b} : Data{};
    }
    return {};
  }

  bool fold_ = false;
  std::vector<Data> data_;
  std::vector<std::vector<NodeId>> nodes_;  // by class
};

struct Row {
  const char *name, *text;
  const char* condition = "";  ///< words: nonzero V, constant V, symbol V, other V W
};

inline constexpr Row rows[] = {
    {"comm-add", "(+ ?a ?b) => (+ ?b ?a)"},
    {"comm-mul", "(* ?a ?b) => (* ?b ?a)"},
    {"assoc-add", "(+ ?a (+ ?b ?c)) => (+ (+ ?a ?b) ?c)"},
    {"assoc-mul", "(* ?a (* ?b ?c)) => (* (* ?a ?b) ?c)"},
    {"sub-canon", "(- ?a ?b) => (+ ?a (* -1 ?b))"},
    {"div-canon", "(/ ?a ?b) => (* ?a (pow ?b -1))", "nonzero ?b"},
    {"zero-add", "(+ ?a 0) => ?a"},
    {"zero-mul", "(* ?a 0) => 0"},
    {"one-mul", "(* ?a 1) => ?a"},
    {"add-zero", "?a => (+ ?a 0)"},
    {"mul-one", "?a => (* ?a 1)"},
    {"cancel-sub", "(- ?a ?a) => 0"},
    {"cancel-div", "(/ ?a ?a) => 1", "nonzero ?a"},
    {"distribute", "(* ?a (+ ?b ?c)) => (+ (* ?a ?b) (* ?a ?c))"},
    {"factor", "(+ (* ?a ?b) (* ?a ?c)) => (* ?a (+ ?b ?c))"},
    {"pow-mul", "(* (pow ?a ?b) (pow ?a ?c)) => (pow ?a (+ ?b ?c))"},
    {"pow0", "(pow ?x 0) => 1", "nonzero ?x"},
    {"pow1", "(pow ?x 1) => ?x"},
    {"pow2", "(pow ?x 2) => (* ?x ?x)"},
    {"pow-recip", "(pow ?x -1) => (/ 1 ?x)", "nonzero ?x"},
    {"recip-mul-div", "(* ?x (/ 1 ?x)) => 1", "nonzero ?x"},
    {"d-variable", "(d ?x ?x) => 1", "symbol ?x"},
    {"d-constant", "(d ?x ?c) => 0", "other ?c ?x"},
    {"d-add", "(d ?x (+ ?a ?b)) => (+ (d ?x ?a) (d ?x ?b))"},
    {"d-mul", "(d ?x (* ?a ?b)) => (+ (* ?a (d ?x ?b)) (* ?b (d ?x ?a)))"},
    {"d-sin", "(d ?x (sin ?x)) => (cos ?x)"},
    {"d-cos", "(d ?x (cos ?x)) => (* -1 (sin ?x))"},
    {"d-ln", "(d ?x (ln ?x)) => (/ 1 ?x)", "nonzero ?x"},
    {"d-power", "(d ?x (pow ?f ?g)) => (* (pow ?f ?g) (+ (* (d ?x ?f) (/ ?g ?f)) (* (d ?x ?g) (ln ?f))))",
     "nonzero ?f ?g"},
    {"i-one", "(i 1 ?x) => ?x"},
    {"i-power-const", "(i (pow ?x ?c) ?x) => (/ (pow ?x (+ ?c 1)) (+ ?c 1))", "constant ?c"},
    {"i-cos", "(i (cos ?x) ?x) => (sin ?x)"},
    {"i-sin", "(i (sin ?x) ?x) => (* -1 (cos ?x))"},
    {"i-sum", "(i (+ ?f ?g) ?x) => (+ (i ?f ?x) (i ?g ?x))"},
    {"i-dif", "(i (- ?f ?g) ?x) => (- (i ?f ?x) (i ?g ?x))"},
    {"i-parts", "(i (* ?a ?b) ?x) => (- (* ?a (i ?b ?x)) (i (* (d ?x ?a) (i ?b ?x)) ?x))"},
};

/// Terms that egg's bench of matching begins with.
inline constexpr const char* terms[] = {
    "(i (ln x) x)",
    "(i (+ x (cos x)) x)",
    "(i (* (cos x) x) x)",
    "(d x (+ 1 (* 2 x)))",
    "(d x (- (pow x 3) (* 7 (pow x 2))))",
    "(+ (* y (+ x y)) (- (+ x 2) (+ x x)))",
    "(/ 1 (- (/ (+ 1 (sqrt five)) 2) (/ (- 1 (sqrt five)) 2)))",
};

inline Rule::Condition condition(const Rule& rule, const Constants& constants, const std::string& text) {
  const auto number = [&](const std::string& name) {
    for (std::size_t i = 0; i < rule.variables.size(); ++i)
      if (rule.variables[i] == name) return i;
    throw std::logic_error(rule.name + " has no " + name);
  };
  const std::size_t space = text.find(' '), second = text.find(' ', space + 1);
  const std::string word = text.substr(0, space),
                    last = second == std::string::npos ? "" : text.substr(second + 1);
  const std::size_t a = number(text.substr(space + 1, second - space - 1)),
                    b = last.empty() ? a : number(last);
  return [&constants, word, a, b](const EGraph& graph, std::span<const ClassId> variables) {
    const Constants::Data &first = constants.of(graph, variables[a]),
                          &other = constants.of(graph, variables[b]);
    if (word == "nonzero") return first.value != 0.0 && other.value != 0.0;
    if (word == "constant") return first.value.has_value();
    if (word == "symbol") return first.symbol;
    return other.symbol && graph.find(variables[a]) != graph.find(variables[b]) &&
           (first.value.has_value() || first.symbol);
  };
}

/// Whether a rule's condition holds for good once it does, and its source is no variable by itself: the ones that egglog can say.
inline bool lasts(const Row& row) {
  const std::string condition = row.condition;
  return row.text[0] != '?' && !condition.starts_with("nonzero") && !condition.starts_with("other");
}

/// All rules, or those that last.
inline std::vector<Rule> rules(EGraph& graph, const Constants& constants, bool all) {
  std::vector<Rule> made;
  for (const Row& row : rows) {
    if (!all && !lasts(row)) continue;
    made.push_back(parse_rule(row.name, row.text, graph.symbols));
    if (row.condition[0] != '\0') made.back().condition = condition(made.back(), constants, row.condition);
  }
  return made;
}

}  // namespace math_rules
