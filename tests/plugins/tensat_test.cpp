// tensat: the e-graph, its matching and its rewrites, against congruence by brute force, all assignments of variables, and proofs.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "plugins/transform/tensat/cycles.hpp"
#include "plugins/transform/tensat/extraction.hpp"
#include "plugins/transform/tensat/rewrite.hpp"
#include "tests/support/math_rules.hpp"
#include "tests/support/recurrent_graph.hpp"

namespace tensat_test {

using namespace tensat;
using Catch::Contains;

namespace {

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t count) {
  return random() % count;
}

/// Random terms over few leaves and operators, so that many are equal in part.
struct Grown {
  EGraph graph;
  std::vector<ClassId> made;  // by term
  std::vector<std::pair<OpId, std::vector<std::size_t>>> terms;

  void add(Random& random) {
    static const char* const leaves[] = {"a", "b", "c", "d", "e", "0", "1"};
    static const char* const unary[] = {"f", "g"};
    static const char* const binary[] = {"+", "*", "h"};
    std::vector<std::size_t> children(terms.size() < 3 ? 0 : below(random, 3));
    for (std::size_t& child : children) child = below(random, terms.size());
    const char* name = children.empty()       ? leaves[below(random, 7)]
                       : children.size() == 1 ? unary[below(random, 2)]
                                              : binary[below(random, 3)];
    std::vector<ClassId> classes;
    for (const std::size_t child : children) classes.push_back(made[child]);
    terms.push_back({graph.symbols.of(name), children});
    made.push_back(graph.add(terms.back().first, classes));
  }
};

/// Classes of terms by brute force: labels that are made equal until nothing changes.
std::vector<std::size_t> closure(const Grown& grown,
                                 const std::vector<std::pair<std::size_t, std::size_t>>& unions) {
  std::vector<std::size_t> label(grown.terms.size());
  for (std::size_t i = 0; i < label.size(); ++i) label[i] = i;
  const auto equate = [&](std::size_t a, std::size_t b) {
    const std::size_t from = label[a], to = label[b];
    for (std::size_t& each : label)
      if (each == from) each = to;
  };
  for (const auto& [a, b] : unions) equate(a, b);
  for (bool changed = true; changed;) {
    changed = false;
    std::map<std::pair<OpId, std::vector<std::size_t>>, std::size_t> seen;
    for (std::size_t i = 0; i < label.size(); ++i) {
      std::vector<std::size_t> children;
      for (const std::size_t child : grown.terms[i].second) children.push_back(label[child]);
      const auto [known, fresh] = seen.try_emplace({grown.terms[i].first, children}, i);
      if (fresh || label[known->second] == label[i]) continue;
      equate(i, known->second);
      changed = true;
    }
  }
  return label;
}

}  // namespace

TEST_CASE("tensat: classes are those of congruence by brute force") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    Grown grown;
    std::vector<std::pair<std::size_t, std::size_t>> unions;
    for (int step = 0; step < 120; ++step) {
      if (grown.terms.size() < 4 || below(random, 3) > 0) {
        grown.add(random);
        continue;
      }
      unions.emplace_back(below(random, grown.terms.size()), below(random, grown.terms.size()));
      grown.graph.unite(grown.made[unions.back().first], grown.made[unions.back().second]);
      if (below(random, 4) == 0) grown.graph.rebuild();
    }
    grown.graph.rebuild();
    INFO("seed " << seed);
    CHECK(grown.graph.violations() == std::vector<std::string>{});
    const std::vector<std::size_t> label = closure(grown, unions);
    bool equal = true;
    for (std::size_t i = 0; i < label.size(); ++i)
      for (std::size_t k = 0; k < i; ++k)
        equal = equal && (label[i] == label[k]) ==
                             (grown.graph.find(grown.made[i]) == grown.graph.find(grown.made[k]));
    CHECK(equal);
  }
}

TEST_CASE("tensat: invariants hold after 10,000 unions") {
  Random random(7);
  Grown grown;
  for (int i = 0; i < 40'000; ++i) grown.add(random);
  for (int i = 0; i < 10'000; ++i) {
    grown.graph.unite(grown.made[below(random, grown.made.size())],
                      grown.made[below(random, grown.made.size())]);
    if (i % 1000 == 999) {
      grown.graph.rebuild();
      REQUIRE(grown.graph.violations() == std::vector<std::string>{});
    }
  }
  // As classes that are left grow few, all is one.
  CHECK(grown.graph.class_count() < 10'000);
}

namespace {

/// The least height of a term of each class.
struct Heights : Analysis {
  std::vector<int> heights;
  int height(const EGraph& graph, NodeId node) const {
    int most = 0;
    for (const ClassId child : graph.children(node)) most = std::max(most, heights[graph.find(child)]);
    return most + 1;
  }
  bool make(const EGraph& graph, NodeId node, ClassId of) override {
    if (heights.size() <= of) heights.resize(of + std::size_t{1}, 1'000'000);
    const int found = height(graph, node);
    if (found >= heights[of]) return false;
    heights[of] = found;
    return true;
  }
  bool merge(ClassId into, ClassId from) override {
    const bool changed = heights[into] != heights[from];
    heights[into] = std::min(heights[into], heights[from]);
    return changed;
  }
};

}  // namespace

TEST_CASE("tensat: data of classes are those that all nodes say in the end") {
  int fell = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    Heights found;
    Grown grown{.graph = EGraph(&found)};
    for (int i = 0; i < 80; ++i) grown.add(random);
    const std::vector<int> before = found.heights;
    for (int i = 0; i < 6; ++i) {
      grown.graph.unite(grown.made[below(random, grown.made.size())],
                        grown.made[below(random, grown.made.size())]);
      if (i % 2 == 0) grown.graph.rebuild();
    }
    grown.graph.rebuild();
    // By going over all nodes until nothing changes.
    Heights whole;
    whole.heights.assign(grown.graph.classes_made(), 1'000'000);
    for (bool changed = true; changed;) {
      changed = false;
      for (NodeId node = 0; node < grown.graph.nodes_made(); ++node)
        if (grown.graph.alive(node))
          changed = whole.make(grown.graph, node, grown.graph.class_of(node)) || changed;
    }
    bool equal = true;
    for (const ClassId each : grown.made) {
      const ClassId of = grown.graph.find(each);
      equal = equal && found.heights[of] == whole.heights[of];
      fell += found.heights[of] < before[each];
    }
    INFO("seed " << seed);
    CHECK(equal);
  }
  CHECK(fell > 300);
}

namespace {

std::set<std::vector<ClassId>> rows_of(const Matches& found) {
  std::set<std::vector<ClassId>> rows;
  for (std::size_t i = 0; i < found.size(); ++i) rows.emplace(found.row(i).begin(), found.row(i).end());
  return rows;
}

/// Each assignment of classes to variables under which the graph has the pattern.
std::set<std::vector<ClassId>> by_assignments(const EGraph& graph, const Pattern& pattern,
                                              std::size_t variables) {
  std::vector<ClassId> classes, chosen(variables, 0);
  for (ClassId each = 0; each < graph.classes_made(); ++each)
    if (graph.find(each) == each) classes.push_back(each);
  std::set<std::vector<ClassId>> rows;
  const auto choose = [&](const auto& self, std::size_t i) -> void {
    if (i < variables) {
      for (chosen[i] = 0; const ClassId each : classes) {
        chosen[i] = each;
        self(self, i + 1);
      }
      return;
    }
    std::vector<std::optional<ClassId>> made;
    for (const Pattern::Term& term : pattern.terms) {
      if (term.variable != Pattern::no_variable) {
        made.push_back(chosen[static_cast<std::size_t>(term.variable)]);
        continue;
      }
      std::vector<ClassId> children;
      for (const int child : term.children)
        if (made[static_cast<std::size_t>(child)]) children.push_back(*made[static_cast<std::size_t>(child)]);
      made.push_back(children.size() == term.children.size() ? graph.lookup(term.op, children)
                                                             : std::nullopt);
    }
    if (!made.back()) return;
    std::vector<ClassId> row{*made.back()};
    row.insert(row.end(), chosen.begin(), chosen.end());
    rows.insert(row);
  };
  choose(choose, 0);
  return rows;
}

const char* const patterns[] = {"?x",
                                "(f ?x)",
                                "(+ ?x ?y)",
                                "(+ ?x ?x)",
                                "(+ ?x 0)",
                                "(* (f ?x) ?x)",
                                "(+ (* ?x ?y) (* ?x ?z))",
                                "(h (+ ?x ?y) (+ ?y ?x))",
                                "(+ (f ?x) (f ?x))",
                                "(* (+ a 0) ?x)",
                                "(f (g (f ?x)))",
                                "(h ?x (h ?y (f ?x)))",
                                "(+ 0 1)"};

}  // namespace

TEST_CASE("tensat: a search finds what all assignments of variables find") {
  std::size_t total = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    Grown grown;
    for (int i = 0; i < 60; ++i) grown.add(random);
    for (int i = 0; i < 5; ++i)
      grown.graph.unite(grown.made[below(random, grown.made.size())],
                        grown.made[below(random, grown.made.size())]);
    grown.graph.rebuild();
    for (const char* const text : patterns) {
      std::vector<std::string> variables;
      const Pattern pattern = parse_pattern(text, grown.graph.symbols, variables);
      Matches found(variables.size());
      const Index index(grown.graph);
      REQUIRE(Matcher(pattern, variables.size()).search(index, found, 1'000'000));
      INFO("seed " << seed << ", " << text);
      const auto rows = rows_of(found);
      CHECK(rows.size() == found.size());
      CHECK((rows == by_assignments(grown.graph, pattern, variables.size())));
      total += rows.size();
    }
  }
  CHECK(total > 1000);
}

TEST_CASE("tensat: blacklisted nodes are not matched") {
  EGraph graph;
  const ClassId a = graph.add_term("(f (g x))");
  graph.rebuild();
  std::vector<std::string> variables;
  const Pattern pattern = parse_pattern("(f (g ?x))", graph.symbols, variables);
  const auto count = [&] {
    Matches found(1);
    const Index index(graph);
    Matcher(pattern, 1).search(index, found, 100);
    return found.size();
  };
  CHECK(count() == 1);
  graph.blacklist(1);
  CHECK(graph.symbols.name(graph.op(1)) == "g");
  CHECK(count() == 0);
  CHECK(graph.add_term("(f (g x))") == a);  // and it is still known
}

TEST_CASE("tensat: a node that turns out to be a blacklisted one is blacklisted, but for the input's") {
  for (const bool input : {false, true}) {
    EGraph graph;
    const ClassId a = graph.add_term("a");
    graph.add_term("(f a)");
    if (input) graph.seal_input();
    const ClassId b = graph.add_term("b");
    graph.add_term("(f b)");
    graph.blacklist(3);
    graph.unite(a, b);
    graph.rebuild();
    CHECK_FALSE(graph.alive(3));
    CHECK(graph.alive(1));
    CHECK(graph.blacklisted(1) != input);
  }
}

TEST_CASE("tensat: what is new is found by looking near it alone") {
  // The same as an application of all matches of the whole graph in each iteration.
  for (const auto& [conditions, iterations] : {std::pair{false, 7}, std::pair{true, 4}}) {
    math_rules::Constants constants(false), other(false);
    EGraph graph(&constants), whole(&other);
    const auto all = math_rules::rules(graph, constants, conditions),
               again = math_rules::rules(whole, other, conditions);
    for (const char* const term : math_rules::terms) {
      graph.add_term(term);
      whole.add_term(term);
    }
    const Saturation report =
        saturate(graph, all, {}, {.nodes = 1'000'000, .iterations = iterations}, CycleFilter::none);
    for (const Iteration& iteration : report.iterations) {
      saturate(whole, again, {}, {.nodes = 1'000'000, .iterations = 1}, CycleFilter::none);
      CHECK(whole.class_count() == iteration.classes);
      CHECK(whole.node_count() == iteration.nodes);
    }
    CHECK(report.iterations.size() == static_cast<std::size_t>(iterations));
    CHECK(report.iterations.back().nodes > 5'000);
    CHECK(graph.violations() == std::vector<std::string>{});
  }
}

TEST_CASE("tensat: what matches by a union far below is found in the next iteration") {
  // By hand: (p ?x) becomes ?x, by which an old node matches, so many operators above.
  struct Below {
    const char *term, *rule, *becomes;
  };
  for (const Below& each :
       {Below{"(- (p a) a)", "(- ?x ?x) => zero", "zero"},
        Below{"(f (p (g a)))", "(f (g ?x)) => (q ?x)", "(q a)"},
        Below{"(f (g (p (h a))))", "(f (g (h ?x))) => (q ?x)", "(q a)"},
        Below{"(f (g (h (p b))))", "(f (g (h b))) => (q b)", "(q b)"},
        Below{"(m b (f (g (p (h (p b))))))", "(m ?x (f (g (h ?x)))) => (q ?x)", "(q b)"}}) {
    EGraph graph;
    const ClassId root = graph.add_term(each.term);
    const std::vector<Rule> rules{parse_rule("p", "(p ?x) => ?x", graph.symbols),
                                  parse_rule("rule", each.rule, graph.symbols)};
    const Saturation report = saturate(graph, rules, {}, {}, CycleFilter::none);
    INFO(each.term);
    CHECK(report.iterations.size() == 3);  // the last finds nothing
    CHECK(graph.find(root) == graph.add_term(each.becomes));
  }
  // By chance: the same as by searches of everything.
  const auto rules_of = [](EGraph& graph) {
    std::vector<Rule> made;
    for (const char* const text :
         {"(f (g ?x)) => ?x", "(+ ?x ?x) => (f ?x)", "(* (f ?x) ?x) => (g ?x)", "(h ?x (h ?y (f ?x))) => ?y",
          "(+ ?x 0) => ?x", "(* ?x (* 1 ?y)) => (+ ?y ?x)", "(g (g (g ?x))) => (f ?x)",
          "(f (+ ?x ?y)) => (h ?y ?x)", "(h ?x (* ?y ?z)) => (* (h ?x ?y) ?z)",
          "(* (+ ?x ?y) ?z) => (+ (* ?x ?z) (* ?y ?z))"})
      made.push_back(parse_rule(text, text, graph.symbols));
    return made;
  };
  std::size_t late = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed), again(seed);
    Grown near, whole;
    for (int i = 0; i < 150; ++i) {
      near.add(random);
      whole.add(again);
    }
    const auto rules = rules_of(near.graph), other = rules_of(whole.graph);
    const Saturation report = saturate(near.graph, rules, {}, {.iterations = 8}, CycleFilter::none);
    INFO("seed " << seed);
    for (const Iteration& each : report.iterations) {
      saturate(whole.graph, other, {}, {.iterations = 1}, CycleFilter::none);
      CHECK(whole.graph.class_count() == each.classes);
      CHECK(whole.graph.node_count() == each.nodes);
    }
    late += report.iterations.size() > 3;
  }
  CHECK(late > 10);
}

namespace {

/// Iterates until two terms are one class, with egg's own limits but for that of nodes. Returns the nodes that it took; nothing where
/// a limit came before.
std::optional<std::size_t> proved(const char* begin, const char* end, std::size_t nodes, bool seen = false) {
  math_rules::Constants constants(true);
  EGraph graph(&constants);
  const auto rules = math_rules::rules(graph, constants, true);
  const ClassId from = graph.add_term(begin);
  if (seen) graph.add_term(end);
  std::vector<std::string> variables;
  const Pattern goal = parse_pattern(end, graph.symbols, variables);
  const auto reached = [&](const EGraph& now) {
    std::vector<Target> absent;
    const Target::Child whole = targets_of(now, goal, {}, absent);
    return absent.empty() && whole.index == now.find(from);
  };
  const Saturation report =
      saturate(graph, rules, {},
               {.nodes = nodes, .iterations = 60, .seconds = 10.0, .resting = 1000, .reached = reached},
               CycleFilter::none);
  if (report.stop != Stop::reached) return std::nullopt;
  return graph.node_count();
}

}  // namespace

TEST_CASE("tensat: what egg proves by its rules of mathematics is proved") {
  struct Proof {
    const char *from, *to;
    bool seen = false;
  };
  const Proof proofs[] = {
      {"(+ x (+ x (+ x x)))", "(* 4 x)"},
      {"(* (pow 2 x) (pow 2 y))", "(pow 2 (+ x y))"},
      {"(+ 1 (- a (* (- 2 1) a)))", "1"},
      {"(/ 1 (- (/ (+ 1 (sqrt five)) 2) (/ (- 1 (sqrt five)) 2)))", "(/ 1 (sqrt five))"},
      {"(* (+ x 3) (+ x 1))", "(+ (+ (* x x) (* 4 x)) 3)"},
      {"(d x x)", "1"},
      {"(d x y)", "0"},
      {"(d x (+ 1 (* 2 x)))", "2"},
      {"(d x (+ 1 (* y x)))", "y"},
      {"(d x (ln x))", "(/ 1 x)"},
      {"(d x (pow x 3))", "(* 3 (pow x 2))"},
      {"(d x (- (pow x 3) (* 7 (pow x 2))))", "(* x (- (* 3 x) 14))", true},
      {"(i 1 x)", "x"},
      {"(i (cos x) x)", "(sin x)"},
      {"(i (pow x 1) x)", "(/ (pow x 2) 2)"},
      {"(i (* x (cos x)) x)", "(+ (* x (sin x)) (cos x))"},
      {"(i (* (cos x) x) x)", "(+ (* x (sin x)) (cos x))"},
      {"(i (ln x) x)", "(- (* x (ln x)) x)"},
  };
  for (const Proof& proof : proofs) {
    const auto nodes = proved(proof.from, proof.to, 100'000, proof.seen);
    INFO(proof.from << " = " << proof.to << ": " << nodes.value_or(0));
    CHECK(nodes);
  }
  CHECK_FALSE(proved("(+ x y)", "(/ x y)", 20'000));
}

TEST_CASE("tensat: sums in every order are 127 classes, as in egg") {
  EGraph graph;
  const ClassId root = graph.add_term("(+ 1 (+ 2 (+ 3 (+ 4 (+ 5 (+ 6 7))))))");
  const std::vector<Rule> rules{parse_rule("comm", "(+ ?a ?b) => (+ ?b ?a)", graph.symbols),
                                parse_rule("assoc", "(+ ?a (+ ?b ?c)) => (+ (+ ?a ?b) ?c)", graph.symbols)};
  saturate(graph, rules, {}, {.iterations = 7}, CycleFilter::none);
  CHECK(graph.class_count() == 127);
  CHECK(graph.add_term("(+ 7 (+ 6 (+ 5 (+ 4 (+ 3 (+ 2 1))))))") == graph.find(root));
}

TEST_CASE("tensat: no order of rules loses what another one finds") {
  // By hand in this order, the first rule takes from the second what it needs: (/ (* a 2) 2) becomes (/ (<< a 1) 2).
  EGraph graph;
  const ClassId root = graph.add_term("(/ (* a 2) 2)");
  graph.rebuild();
  CHECK(graph.node_count() == 4);
  const std::vector<Rule> rules{parse_rule("shift", "(* ?x 2) => (<< ?x 1)", graph.symbols),
                                parse_rule("assoc", "(/ (* ?x ?y) ?z) => (* ?x (/ ?y ?z))", graph.symbols),
                                parse_rule("cancel", "(/ ?x ?x) => 1", graph.symbols),
                                parse_rule("one", "(* ?x 1) => ?x", graph.symbols)};
  const Saturation report = saturate(graph, rules, {}, {}, CycleFilter::none);
  CHECK(report.stop == Stop::saturated);
  CHECK(graph.find(root) == graph.add_term("a"));
  // a, 2, 1; a * 2 and a << 1; 2 / 2, which is 1; (a * 2) / 2 and a * (2 / 2), which are a.
  CHECK(graph.node_count() == 8);
  CHECK(graph.class_count() == 4);
}

TEST_CASE("tensat: limits stop, and say which") {
  const auto run = [](Limits limits) {
    math_rules::Constants constants(false);
    EGraph graph(&constants);
    const auto rules = math_rules::rules(graph, constants, true);
    for (const char* const term : math_rules::terms) graph.add_term(term);
    const Saturation report = saturate(graph, rules, {}, limits, CycleFilter::none);
    CHECK(graph.violations() == std::vector<std::string>{});
    CHECK(report.iterations.back().nodes == graph.node_count());
    return std::pair{report.stop, graph.node_count()};
  };
  const auto [nodes_stop, nodes] = run({.nodes = 5000, .iterations = 20});
  CHECK(nodes_stop == Stop::nodes);
  CHECK(nodes > 4000);
  CHECK(nodes < 5400);  // a rule adds few at once, in 32 places
  CHECK(run({.iterations = 2}).first == Stop::iterations);
  CHECK(run({.nodes = 10'000'000, .iterations = 20, .seconds = 0.02}).first == Stop::seconds);
  CHECK(run({.nodes = 10'000'000, .iterations = 20, .matches = 50}).first == Stop::matches);
}

TEST_CASE("tensat: rules of several sources take pairs that share their variables") {
  EGraph graph;
  const std::vector<Rule> rules{parse_rule(
      "merge", "(mm ?x ?a) , (mm ?x ?b) => (split0 (mm ?x (cat ?a ?b))) , (split1 (mm ?x (cat ?a ?b)))",
      graph.symbols)};
  std::vector<ClassId> roots;
  for (const char* const term : {"(mm x a)", "(mm x b)", "(mm x c)", "(mm y a)", "(mm y d)"})
    roots.push_back(graph.add_term(term));
  const Saturation report = saturate(graph, rules, roots, {.iterations = 1}, CycleFilter::none);
  // Three pairs of x and one of y; none is taken in both orders, nor with itself.
  CHECK(report.iterations[0].matches == 4);
  CHECK(graph.class_count() == 6 + 5 + 4 * 2);
  CHECK(graph.add_term("(split1 (mm y (cat a d)))") == graph.find(roots[4]));

  // Nor does one get lost whose condition holds in the other order alone.
  EGraph ordered;
  std::vector<Rule> larger{
      parse_rule("larger", "(mm ?x ?a) , (mm ?x ?b) => (s0 (mm ?x (cat ?a ?b))) , (s1 (mm ?x (cat ?a ?b)))",
                 ordered.symbols)};
  larger[0].condition = [](const EGraph&, std::span<const ClassId> variables) {
    return variables[1] > variables[2];
  };
  for (const char* const term : {"(mm x a)", "(mm x b)", "(mm x c)", "(mm y d)", "(mm y a)"})
    ordered.add_term(term);
  CHECK(saturate(ordered, larger, {}, {.iterations = 1}, CycleFilter::none).iterations[0].matches == 4);

  // Two sources of different patterns are joined by what they share, too.
  EGraph other;
  const std::vector<Rule> mixed{
      parse_rule("mixed", "(f ?x ?y) , (g ?y ?z) => (h ?x ?y ?z) , (k ?z ?y ?x)", other.symbols)};
  for (const char* const term : {"(f a b)", "(f c b)", "(f a c)", "(g b d)", "(g b e)", "(g d c)"})
    other.add_term(term);
  CHECK(saturate(other, mixed, {}, {.iterations = 1}, CycleFilter::none).iterations[0].matches == 4);
  CHECK(other.lookup(*other.symbols.find("h"),
                     std::vector{other.add_term("c"), other.add_term("b"), other.add_term("e")}));

  // Behind so many iterations they rest.
  EGraph third;
  const std::vector<Rule> one{
      parse_rule("merge", "(mm ?x ?a) , (mm ?x ?b) => (s0 (mm ?x (cat ?a ?b))) , (s1 (mm ?x (cat ?a ?b)))",
                 third.symbols)};
  for (const char* const term : {"(mm x a)", "(mm x b)", "(mm x c)"}) third.add_term(term);
  const Saturation twice =
      saturate(third, one, {}, {.iterations = 4, .multi_iterations = 2}, CycleFilter::none);
  REQUIRE(twice.iterations.size() == 3);
  CHECK(twice.iterations[1].matches == 15);  // six matmuls with x
  CHECK(twice.iterations[2].matches == 0);
  CHECK(twice.stop == Stop::saturated);
}

TEST_CASE("tensat: a rule that finds too much rests, and comes back") {
  const auto run = [](int terms, bool others, int iterations) {
    EGraph graph;
    for (int i = 0; i < terms; ++i) graph.add_term("(f a" + std::to_string(i) + ")");
    std::vector<Rule> rules{parse_rule("much", "(f ?x) => (g ?x)", graph.symbols)};
    if (others) {  // which finds one more in each iteration, and never rests, as it has two sources
      graph.add_term("(c k)");
      graph.add_term("(k k)");
      rules.push_back(parse_rule("grow", "(c ?x) , (k ?y) => (d (c (e ?x))) , (k ?y)", graph.symbols));
    }
    const Saturation report =
        saturate(graph, rules, {}, {.iterations = iterations, .multi_iterations = 100, .resting = 3},
                 CycleFilter::none);
    std::vector<std::size_t> much;
    for (std::size_t i = 0; i < report.iterations.size(); ++i)
      much.push_back(report.iterations[i].matches - (others ? i + 1 : 0));
    return much;
  };
  using Found = std::vector<std::size_t>;
  CHECK(run(3, true, 4) == Found{3, 3, 3, 3});
  // 5 are above 3, and no longer above 6; 7 are above 6, too, and rest for twice as long.
  CHECK(run(5, true, 8) == Found{0, 0, 0, 0, 0, 0, 5, 5});
  CHECK(run(7, true, 19) == Found{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 7});
  // Where nothing else goes on, it is not waited for.
  CHECK(run(5, false, 8) == Found{0, 5, 5});
}

TEST_CASE("tensat: two sources are not taken from one class") {
  EGraph graph;
  const std::vector<Rule> rules{
      parse_rule("merge", "(mm ?x ?a) , (mm ?x ?b) => (s0 (mm ?x (cat ?a ?b))) , (s1 (mm ?x (cat ?a ?b)))",
                 graph.symbols)};
  graph.unite(graph.add_term("(mm x a)"), graph.add_term("(mm x b)"));
  graph.add_term("(mm x c)");
  // a with c, b with c; a with b is one class.
  CHECK(saturate(graph, rules, {}, {.iterations = 1}, CycleFilter::none).iterations[0].matches == 2);
}

using recurrent_graph::merging, recurrent_graph::recurrent;

TEST_CASE("tensat: the limit of nodes holds in the midst of an iteration, with a filter as without") {
  for (const CycleFilter filter : {CycleFilter::none, CycleFilter::vanilla, CycleFilter::efficient}) {
    EGraph graph;
    const auto roots = recurrent(graph, 3, 3);
    graph.rebuild();
    graph.seal_input();
    const Saturation report = saturate(graph, merging(graph), roots, {.nodes = 150, .iterations = 3}, filter);
    CHECK(report.stop == Stop::nodes);
    CHECK(graph.node_count() > 100);  // unions take some away
    // One place makes 4 nodes at most, and 32 of them are taken together where nothing is asked of each.
    CHECK(graph.node_count() <= 150 + (filter == CycleFilter::none ? 32 * 4 : 4));
  }
}

TEST_CASE("tensat: filters leave no cycle, and the input can be extracted") {
  for (const CycleFilter filter : {CycleFilter::vanilla, CycleFilter::efficient}) {
    EGraph graph;
    const auto roots = recurrent(graph, 3, 3);
    graph.rebuild();
    graph.seal_input();
    const Extractable before = problem_of(graph, roots, recurrent_graph::costs(graph));
    const double cost = extract(before.problem, Extractor::greedy, {}, &before.input).best.cost;
    const Saturation report =
        saturate(graph, merging(graph), roots, {.nodes = 4000, .iterations = 3}, filter);
    CHECK(report.iterations[0].cyclic > 0);
    CHECK(graph.violations() == std::vector<std::string>{});
    // Nothing that can be come to from the root is a cycle: each class is below those that use it.
    const Extractable after = problem_of(graph, roots, recurrent_graph::costs(graph));
    std::vector<int> state(after.problem.classes.size(), 0);
    bool cyclic = false;
    const auto walk = [&](const auto& self, std::uint32_t of) -> void {
      state[of] = 1;
      for (const std::uint32_t node : after.problem.classes[of])
        for (const std::uint32_t child : after.problem.nodes[node].children) {
          if (state[child] == 1) cyclic = true;
          if (state[child] == 0) self(self, child);
        }
      state[of] = 2;
    };
    walk(walk, after.problem.roots[0]);
    CHECK_FALSE(cyclic);
    const auto input = verified(after.problem, after.input);
    REQUIRE(input);
    CHECK(input->cost <= cost);
    for (const std::int32_t node : input->choice)
      if (node != unchosen) CHECK(after.nodes[static_cast<std::size_t>(node)] < graph.input_nodes());
    CHECK(extract(after.problem, Extractor::greedy_dag, {}, &after.input).best.cost < cost);
  }
}

TEST_CASE("tensat: without a filter there are cycles") {
  EGraph graph;
  const auto roots = recurrent(graph, 3, 3);
  graph.rebuild();
  graph.seal_input();
  const Extractable before = problem_of(graph, roots, recurrent_graph::costs(graph));
  const double cost = verified(before.problem, before.input)->cost;
  saturate(graph, merging(graph), roots, {.nodes = 4000, .iterations = 2}, CycleFilter::none);
  CHECK(break_cycles(graph, roots) > 0);
  CHECK(break_cycles(graph, roots) == 0);
  const Extractable after = problem_of(graph, roots, recurrent_graph::costs(graph));
  const auto input = verified(after.problem, after.input);
  REQUIRE(input);
  CHECK(input->cost <= cost);
  for (const std::int32_t node : input->choice)
    if (node != unchosen) CHECK(after.nodes[static_cast<std::size_t>(node)] < graph.input_nodes());
}

TEST_CASE("tensat: a cycle that another one's node has broken costs no more") {
  // a = p(q(a)), and p(r(s(a))), as q(a) = r(s(a)): without p both are broken.
  EGraph graph;
  const ClassId a = graph.add_term("a"), q = graph.add_term("(q a)");
  graph.unite(a, graph.add_term("(p (q a))"));
  graph.unite(q, graph.add_term("(r (s a))"));
  graph.rebuild();
  CHECK(break_cycles(graph, std::vector{a}) == 1);
  for (NodeId node = 0; node < graph.nodes_made(); ++node)
    CHECK(graph.blacklisted(node) == (graph.symbols.name(graph.op(node)) == "p"));
}

TEST_CASE("tensat: a node of the input may go where an older one stands for it") {
  // x and the transpose of its transpose are one class, whose cycle is of nodes of the input alone.
  EGraph graph;
  const std::vector<ClassId> roots{graph.add_term("(relu (t (t x)))")};
  graph.rebuild();
  graph.seal_input();
  const std::vector<Rule> rules{parse_rule("twice", "(t (t ?x)) => ?x", graph.symbols)};
  const Saturation report = saturate(graph, rules, roots, {}, CycleFilter::efficient);
  CHECK(report.iterations[0].broken == 1);
  const std::vector<double> costs(graph.nodes_made(), 1.0);
  const Extractable left = problem_of(graph, roots, costs);
  CHECK(extract(left.problem, Extractor::greedy, {}, &left.input).best.cost == 2.0);
}

namespace {

/// Refuses nodes of the operator `bad`.
struct Refusing : Analysis {
  OpId bad = 0;
  std::size_t asked = 0;
  bool make(const EGraph&, NodeId, ClassId) override { return false; }
  bool merge(ClassId, ClassId) override { return false; }
  bool has_opinions() const override { return true; }
  bool admits(const EGraph&, std::span<const Target> targets, std::span<const Equality>) const override {
    return std::ranges::none_of(targets, [&](const Target& each) { return each.op == bad; });
  }
};

}  // namespace

TEST_CASE("tensat: a target that the analysis refuses leaves nothing behind") {
  Refusing refusing;
  EGraph graph(&refusing);
  refusing.bad = graph.symbols.of("bad");
  graph.add_term("(f a)");
  graph.rebuild();
  const std::vector<Rule> rules{parse_rule("no", "(f ?x) => (g (bad (h ?x)))", graph.symbols),
                                parse_rule("yes", "(f ?x) => (k ?x)", graph.symbols)};
  const Saturation report = saturate(graph, rules, {}, {}, CycleFilter::none);
  CHECK(report.iterations[0].refused == 1);
  CHECK(graph.node_count() == 3);
  CHECK(graph.class_count() == 2);
}

TEST_CASE("tensat: what is no term or rule is refused with its place") {
  EGraph graph;
  CHECK_THROWS_WITH(graph.add_term("(f a"), Contains("'(f a': expected ')' at character 5"));
  CHECK_THROWS_WITH(graph.add_term("(f a) b"), Contains("nothing more at character 7"));
  CHECK_THROWS_WITH(graph.add_term("()"), Contains("a name at character 2"));
  CHECK_THROWS_WITH(graph.add_term(""), Contains("a term at character 1"));
  CHECK_THROWS_WITH(graph.add_term("(f ?x)"), Contains("has the variable ?x, and a term none"));
  CHECK_THROWS_WITH(graph.add_term("(?f x)"), Contains("an operator, which ?f is not"));
  CHECK_THROWS_WITH(parse_rule("r", "(f ?x) (g ?x)", graph.symbols), "rule r: '(f ?x) (g ?x)' has no '=>'");
  CHECK_THROWS_WITH(parse_rule("r", "(f ?x) => (g ?y)", graph.symbols), "rule r: its sources have no ?y");
  CHECK_THROWS_WITH(parse_rule("r", "(f ?x) , (g ?x) => (g ?x)", graph.symbols),
                    "rule r: it needs as many targets as sources");
  CHECK_THROWS_WITH(parse_rule("r", "(f ?x => (g ?x)", graph.symbols),
                    Contains("rule r: '(f ?x ': expected ')'"));
  CHECK_THROWS_WITH(graph.add_term("(f 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17)"),
                    Contains("16 children at most"));
}

}  // namespace tensat_test
