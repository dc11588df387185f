// tensat: the choice of nodes, against the card's figures, all choices there are, and public dumps of e-graphs.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "plugins/transform/tensat/extraction.hpp"
#include "tests/support/egraph_dump.hpp"

namespace tensat_extraction_test {

using namespace tensat;
using Catch::Contains;
using Catch::WithinAbs;

namespace {

using Random = std::mt19937_64;

std::uint32_t below(Random& random, std::uint32_t count) {
  return static_cast<std::uint32_t>(random() % count);
}

const IlpOptions by_order[] = {{.order = Order::none, .seconds = 5.0},
                               {.order = Order::real, .seconds = 5.0},
                               {.order = Order::integer, .seconds = 5.0}};

/// An acyclic input among nodes of chance, whose children are any classes.
struct Made {
  Problem problem;
  Choice input;
};

Made made_problem(Random& random, std::uint32_t most_classes, std::uint32_t extra, bool cyclic) {
  Made made;
  const std::uint32_t classes = 2 + below(random, most_classes - 1);
  const auto cost = [&] {
    return below(random, 4) == 0 ? 0.0 : static_cast<double>(below(random, 1000)) / 100.0;
  };
  for (std::uint32_t of = 0; of < classes; ++of) {
    std::vector<std::uint32_t> children;
    for (std::uint32_t i = below(random, 4); i > 0 && of + 1 < classes; --i)
      children.push_back(of + 1 + below(random, classes - of - 1));
    made.input.push_back(static_cast<std::int32_t>(made.problem.add(of, cost(), std::move(children))));
  }
  for (std::uint32_t i = below(random, extra + 1); i > 0; --i) {
    const std::uint32_t of = below(random, classes);
    std::vector<std::uint32_t> children;
    for (std::uint32_t k = below(random, 4); k > 0; --k) {
      if (cyclic)
        children.push_back(below(random, classes));
      else if (of + 1 < classes)
        children.push_back(of + 1 + below(random, classes - of - 1));
    }
    made.problem.add(of, cost(), std::move(children));
  }
  made.problem.classes.resize(classes);
  made.problem.roots = {0};
  if (below(random, 4) == 0) made.problem.roots.push_back(below(random, classes));
  return made;
}

/// Whether what the roots need is there and acyclic, and what it costs: by taking away what needs nothing that is left.
std::optional<double> cost_of(const Problem& problem, const std::vector<std::int32_t>& choice) {
  std::vector<std::uint32_t> needed = problem.roots;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (choice[needed[i]] < 0) return std::nullopt;
    for (const std::uint32_t child : problem.nodes[static_cast<std::size_t>(choice[needed[i]])].children)
      if (std::ranges::find(needed, child) == needed.end()) needed.push_back(child);
  }
  std::ranges::sort(needed);
  needed.erase(std::ranges::unique(needed).begin(), needed.end());
  double cost = 0.0;
  while (!needed.empty()) {
    const auto free = std::ranges::find_if(needed, [&](std::uint32_t of) {
      return std::ranges::none_of(
          problem.nodes[static_cast<std::size_t>(choice[of])].children,
          [&](std::uint32_t child) { return std::ranges::find(needed, child) != needed.end(); });
    });
    if (free == needed.end()) return std::nullopt;
    cost += problem.nodes[static_cast<std::size_t>(choice[*free])].cost;
    needed.erase(free);
  }
  return cost;
}

/// The least cost of all choices.
double by_all_choices(const Problem& problem) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<std::int32_t> choice(problem.classes.size(), unchosen);
  std::vector<std::uint32_t> needed;
  const auto choose = [&](const auto& self, std::size_t i, double sum) -> void {
    if (sum >= best) return;
    if (i == needed.size()) {
      if (const auto cost = cost_of(problem, choice)) best = std::min(best, *cost);
      return;
    }
    for (const std::uint32_t node : problem.classes[needed[i]]) {
      const std::size_t before = needed.size();
      choice[needed[i]] = static_cast<std::int32_t>(node);
      for (const std::uint32_t child : problem.nodes[node].children)
        if (std::ranges::find(needed, child) == needed.end()) needed.push_back(child);
      self(self, i + 1, sum + problem.nodes[node].cost);
      needed.resize(before);
      choice[needed[i]] = unchosen;
    }
  };
  for (const std::uint32_t root : problem.roots)
    if (std::ranges::find(needed, root) == needed.end()) needed.push_back(root);
  choose(choose, 0, 0.0);
  return best;
}

bool longer() {
  return std::getenv("TRAINYARD_LONGER") != nullptr;
}

}  // namespace

TEST_CASE("tensat extraction: as a tree g(g(x)) is the cheaper, as a graph f(x, x, x)") {
  // The card's figure: a class of f(x, x, x) and g(g(x)), all nodes cost 1.
  EGraph graph;
  const ClassId root = graph.add_term("(f x x x)");
  graph.unite(root, graph.add_term("(g (g x))"));
  graph.rebuild();
  const std::vector<double> costs(graph.nodes_made(), 1.0);
  const Extractable made = problem_of(graph, std::vector{root}, costs);
  CHECK(made.problem.nodes.size() == 4);
  std::vector<double> others;
  for (NodeId node = 0; node < graph.nodes_made(); ++node) others.push_back(1.0 + node);
  const Extractable dearer = problem_of(graph, std::vector{root}, others);
  for (std::size_t i = 0; i < dearer.nodes.size(); ++i)
    CHECK(dearer.problem.nodes[i].cost == 1.0 + dearer.nodes[i]);
  CHECK(verified(made.problem, greedy(made.problem))->cost == 3.0);
  CHECK(verified(made.problem, greedy_dag(made.problem))->cost == 2.0);
  for (const IlpOptions& options : by_order)
    CHECK(extract(made.problem, Extractor::ilp, options).best.cost == 2.0);
}

TEST_CASE("tensat extraction: a merged product pays for two users together") {
  // Two products of 1, or both halves of one of 1.2.
  Problem problem;
  problem.add(0, 0.0, {1, 2});
  problem.add(1, 1.0, {});
  problem.add(1, 0.0, {3});
  problem.add(2, 1.0, {});
  problem.add(2, 0.0, {3});
  problem.add(3, 1.2, {});
  problem.roots = {0};
  CHECK(verified(problem, greedy(problem))->cost == 2.0);
  const Extraction made = extract(problem, Extractor::ilp);
  CHECK_THAT(made.best.cost, WithinAbs(1.2, 1e-12));
  CHECK(made.from == "ilp");
  CHECK(made.solver.status == SolverStatus::optimal);
  CHECK_THAT(made.solver.bound, WithinAbs(1.2, 1e-9));
  CHECK(made.solver.gap == 0.0);
}

TEST_CASE("tensat extraction: a cycle is cheaper, and no choice") {
  // A = mm(X, W), B = relu(A), C = mm(B, W); merged, both halves of mm(cat(X, B), W) need B, and B one of them.
  enum : std::uint32_t { c, b, a, merged, cat, x };
  Problem problem;
  problem.add(c, 1.0, {b});
  problem.add(b, 0.1, {a});
  problem.add(a, 1.0, {x});
  problem.add(x, 0.0, {});
  problem.add(c, 0.0, {merged});
  problem.add(a, 0.0, {merged});
  problem.add(merged, 1.2, {cat});
  problem.add(cat, 0.05, {x, b});
  problem.roots = {c};
  for (const IlpOptions& options : by_order) {
    const Extraction made = extract(problem, Extractor::ilp, options);
    CHECK_THAT(made.best.cost, WithinAbs(2.1, 1e-9));
    CHECK(made.solver.status == SolverStatus::optimal);
    CHECK_THAT(*made.ilp, WithinAbs(2.1, 1e-9));
    CHECK_THAT(made.solver.first, WithinAbs(options.order == Order::none ? 1.35 : 2.1, 1e-9));
    CHECK((made.solver.cuts > 0) == (options.order == Order::none));
  }
  Choice cyclic(6, unchosen);
  cyclic[c] = 4, cyclic[b] = 1, cyclic[a] = 5, cyclic[merged] = 6, cyclic[cat] = 7, cyclic[x] = 3;
  std::vector<Cycle> cycles;
  CHECK_FALSE(verified(problem, cyclic));
  CHECK_FALSE(verified(problem, cyclic, &cycles));
  REQUIRE(cycles.size() == 1);
  CHECK(cycles[0].size() == 4);
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(std::ranges::count(problem.nodes[static_cast<std::size_t>(cyclic[cycles[0][i]])].children,
                             cycles[0][(i + 1) % 4]) == 1);
}

TEST_CASE("tensat extraction: a choice is walked through as by taking away what needs nothing") {
  Random random(17);
  int acyclic = 0;
  for (int i = 0; i < 2000; ++i) {
    const Made made = made_problem(random, 12, 20, true);
    Choice choice;
    for (const auto& nodes : made.problem.classes)
      choice.push_back(
          below(random, 30) == 0
              ? unchosen
              : static_cast<std::int32_t>(nodes[below(random, static_cast<std::uint32_t>(nodes.size()))]));
    const auto expected = cost_of(made.problem, choice);
    const auto found = verified(made.problem, choice);
    std::vector<Cycle> cycles;
    REQUIRE(found.has_value() == expected.has_value());
    REQUIRE(verified(made.problem, choice, &cycles).has_value() == expected.has_value());
    if (!found) continue;
    ++acyclic;
    REQUIRE_THAT(found->cost, WithinAbs(*expected, 1e-9));
  }
  CHECK(acyclic > 200);
  CHECK(acyclic < 1800);
}

TEST_CASE("tensat extraction: a class is not below itself, though it were cheaper") {
  // 0 by itself costs 10; by its other node it would cost what 1 costs, which needs 0.
  Problem problem;
  problem.add(0, 10.0, {});
  problem.add(0, 0.0, {1});
  problem.add(1, 1.0, {0});
  problem.roots = {1};
  CHECK(verified(problem, greedy(problem))->cost == 11.0);
  const auto dag = verified(problem, greedy_dag(problem));
  REQUIRE(dag);
  CHECK(dag->cost == 11.0);
}

TEST_CASE("tensat extraction: where nothing is shared both greedy ones find the least") {
  Random random(23);
  for (int i = 0; i < 300; ++i) {
    Problem problem;
    std::uint32_t classes = 1;
    // Each class is a child of one node alone.
    for (std::uint32_t of = 0; of < classes && classes < 14; ++of)
      for (std::uint32_t node = 1 + below(random, 3); node > 0; --node) {
        std::vector<std::uint32_t> children;
        for (std::uint32_t child = classes < 12 ? below(random, 3) : 0; child > 0; --child)
          children.push_back(classes++);
        problem.add(of, static_cast<double>(below(random, 1000)) / 100.0, std::move(children));
      }
    for (std::uint32_t of = 0; of < classes; ++of)
      if (problem.classes.size() <= of || problem.classes[of].empty())
        problem.add(of, static_cast<double>(below(random, 1000)) / 100.0, {});
    problem.roots = {0};
    const double least = by_all_choices(problem);
    CHECK_THAT(verified(problem, greedy(problem))->cost, WithinAbs(least, 1e-9));
    CHECK_THAT(verified(problem, greedy_dag(problem))->cost, WithinAbs(least, 1e-9));
  }
}

TEST_CASE("tensat extraction: the least of all choices, cyclic or not") {
  Random random(5);
  int strictly = 0, below_dag = 0;
  for (int i = 0; i < (longer() ? 3000 : 400); ++i) {
    const Made made = made_problem(random, i % 10 == 0 ? 14 : 9, 14, i % 3 != 0);
    const double least = by_all_choices(made.problem);
    const IlpOptions& options = by_order[i % 3];
    const Extraction found = extract(made.problem, Extractor::ilp, options, &made.input);
    INFO("problem " << i << ", order " << static_cast<int>(options.order));
    CHECK_THAT(found.best.cost, WithinAbs(least, 1e-9));
    CHECK(found.solver.status == SolverStatus::optimal);
    CHECK_THAT(found.solver.bound, WithinAbs(least, 1e-6));
    REQUIRE(found.ilp);
    CHECK_THAT(*found.ilp, WithinAbs(least, 1e-9));
    const auto walked = cost_of(made.problem, found.best.choice);
    REQUIRE(walked);
    CHECK_THAT(*walked, WithinAbs(found.best.cost, 1e-9));
    strictly += *found.greedy > least + 1e-9;
    below_dag += !found.greedy_dag || *found.greedy_dag > least + 1e-9;
  }
  CHECK(strictly > 20);
  CHECK(below_dag > 2);
}

TEST_CASE("tensat extraction: a start that is not there changes nothing but the time") {
  Random random(9);
  for (int i = 0; i < 60; ++i) {
    const Made made = made_problem(random, 10, 14, true);
    const IlpResult found = ilp(made.problem, {.order = by_order[i % 3].order, .warm_start = false});
    REQUIRE(found.selection);
    CHECK_THAT(found.selection->cost, WithinAbs(by_all_choices(made.problem), 1e-9));
  }
}

TEST_CASE(
    "tensat extraction: of 10,000 cyclic e-graphs none has a cyclic result, or one that costs more than the "
    "input") {
  Random random(11);
  int cyclic_dags = 0, worse_trees = 0;
  for (int i = 0; i < 10'000; ++i) {
    const Made made = made_problem(random, 40, 120, true);
    const double before = *cost_of(made.problem, made.input);
    const bool solve = longer() || i % 50 == 0;
    const Extraction found =
        extract(made.problem, solve ? Extractor::ilp : Extractor::greedy_dag, {.seconds = 5.0}, &made.input);
    const auto walked = cost_of(made.problem, found.best.choice);
    if (!walked || std::abs(*walked - found.best.cost) > 1e-9 || found.best.cost > before + 1e-12)
      FAIL("problem " << i);
    // Each class comes behind those that it needs.
    std::vector<bool> there(made.problem.classes.size(), false);
    for (const std::uint32_t of : found.best.order) {
      for (const std::uint32_t child :
           made.problem.nodes[static_cast<std::size_t>(found.best.choice[of])].children)
        if (!there[child]) FAIL("order of problem " << i);
      there[of] = true;
    }
    if (solve && (!found.ilp || *found.ilp > found.greedy_dag.value_or(1e300) + 1e-9))
      FAIL("solver, problem " << i);
    cyclic_dags += !found.greedy_dag;
    worse_trees += *found.greedy > before + 1e-9;
  }
  CHECK(worse_trees > 10);  // so that the input counts among what is returned
  CHECK(cyclic_dags == 0);
}

TEST_CASE("tensat extraction: what stops a solver is said, and what was there before is returned") {
  // Weights of chance that no bound proves soon: a cover of many by few.
  Random random(3);
  Problem hard;
  const std::uint32_t sets = 120, elements = 160;
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < elements; ++i) all.push_back(1 + i);
  hard.add(0, 0.0, all);
  for (std::uint32_t i = 0; i < elements; ++i)
    for (int k = 0; k < 6; ++k) hard.add(1 + i, 0.0, {1 + elements + below(random, sets)});
  for (std::uint32_t i = 0; i < sets; ++i) hard.add(1 + elements + i, 1.0 + below(random, 100) / 100.0, {});
  hard.roots = {0};
  const Extraction made = extract(hard, Extractor::ilp, {.seconds = 0.3});
  CHECK(made.solver.status == SolverStatus::time_limit);
  CHECK(made.solver.seconds < 5.0);
  CHECK(made.solver.gap > 0.0);
  CHECK(made.solver.bound < made.best.cost);
  CHECK(cost_of(hard, made.best.choice));

  Problem impossible;
  impossible.add(0, 1.0, {1});
  impossible.add(1, 1.0, {0});
  impossible.roots = {0};
  CHECK_THROWS_WITH(extract(impossible, Extractor::ilp),
                    "no acyclic choice of nodes makes all that the roots need");
  for (const IlpOptions& options : by_order) {
    const IlpResult none = ilp(impossible, options);
    CHECK_FALSE(none.selection);
    CHECK(none.report.status == SolverStatus::infeasible);
  }
}

TEST_CASE("tensat extraction: a solver's .9999 is 1, and what is no integer is said to be none") {
  Problem problem;
  problem.add(0, 1.0, {});
  problem.add(0, 1.0, {});
  problem.add(1, 1.0, {});
  bool exact = true;
  CHECK(rounded(problem, std::vector{1e-5, 0.99995, 1.0 - 1e-9}, exact) == Choice{1, 2});
  CHECK(exact);
  CHECK(rounded(problem, std::vector{0.6, 0.4, 0.4}, exact) == Choice{0, unchosen});
  CHECK_FALSE(exact);
}

TEST_CASE("tensat extraction: costs and roots that are none are refused") {
  Problem problem;
  problem.add(0, -1.0, {});
  problem.roots = {0};
  CHECK_THROWS_WITH(extract(problem, Extractor::greedy),
                    "node 0 costs -1.000000: expected a finite number that is not negative");
  problem.nodes[0].cost = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH(extract(problem, Extractor::greedy), Contains("costs nan"));
  problem.nodes[0].cost = std::numeric_limits<double>::infinity();
  CHECK_THROWS_WITH(ilp(problem, {}), Contains("costs inf"));
  problem.nodes[0].cost = 1.0;
  problem.roots = {7};
  CHECK_THROWS_WITH(extract(problem, Extractor::greedy), "root 7 is no class");
  problem.roots = {};
  CHECK_THROWS_WITH(extract(problem, Extractor::greedy), "there is no root to extract");
}

TEST_CASE("tensat extraction: programs are counted by the choices of the classes that can be come to") {
  Problem problem;
  problem.add(0, 1.0, {1});
  problem.add(0, 1.0, {});
  problem.add(1, 1.0, {});
  for (int i = 0; i < 7; ++i) problem.add(1, 1.0, {});
  for (int i = 0; i < 4; ++i) problem.add(2, 1.0, {});
  problem.roots = {0};
  CHECK(log2_programs(problem) == 4.0);
}

namespace {

constexpr const char* no_dumps =
    "skipped: neither TRAINYARD_EGRAPHS nor TRAINYARD_DATA/compiler/egraphs has dumps of extraction-gym";

}  // namespace

TEST_CASE("tensat extraction: public dumps come out as the card says") {
  const std::vector<std::filesystem::path> files = egraph_dump::files();
  const auto extracted = [&](const char* name) -> std::optional<Extraction> {
    const auto file =
        std::ranges::find(files, name, [](const auto& each) { return each.filename().string(); });
    if (file == files.end()) return std::nullopt;
    const Problem problem = egraph_dump::read(*file);
    Extraction made = extract(problem, Extractor::ilp, {.seconds = 5.0});
    CHECK(made.solver.status == SolverStatus::optimal);
    CHECK_THAT(*cost_of(problem, made.best.choice), WithinAbs(made.best.cost, 1e-9));
    return made;
  };
  const auto vgg = extracted("vgg_acyclic.json"), resnet = extracted("resnet50_acyclic.json");
  if (!vgg || !resnet) {
    WARN(no_dumps);
    return;
  }
  CHECK_THAT(vgg->best.cost, WithinAbs(4.866774947848, 1e-6));
  CHECK_THAT(*vgg->greedy, WithinAbs(4.866774947848, 1e-6));
  CHECK_THAT(resnet->best.cost, WithinAbs(4.4159930, 1e-6));
  CHECK(*resnet->greedy_dag > resnet->best.cost);
}

TEST_CASE("tensat extraction: small public dumps of all kinds against all choices") {
  int dumps = 0, enumerated = 0;
  for (const std::filesystem::path& file : egraph_dump::files()) {
    if (std::filesystem::file_size(file) > 30'000) continue;
    const Problem problem = egraph_dump::read(file);
    const Extraction made = extract(problem, Extractor::ilp, {.seconds = 2.0});
    INFO(file);
    ++dumps;
    const auto walked = egraph_dump::cost_of(problem, made.best.choice);
    REQUIRE(walked);
    CHECK_THAT(*walked, WithinAbs(made.best.cost, 1e-9 * (1.0 + *walked)));
    CHECK(made.best.cost <= *made.greedy);
    CHECK(made.best.cost <= made.greedy_dag.value_or(*made.greedy));
    CHECK(made.solver.bound <= made.best.cost * (1.0 + 1e-6) + 1e-9);
    // With so few choices all of them are looked at.
    if (log2_programs(problem) > 18.0) continue;
    ++enumerated;
    CHECK(made.solver.status == SolverStatus::optimal);
    const double least = by_all_choices(problem);
    CHECK_THAT(made.best.cost, WithinAbs(least, 1e-9 * (1.0 + least)));
    REQUIRE(made.ilp);
    CHECK_THAT(*made.ilp, WithinAbs(least, 1e-9 * (1.0 + least)));
  }
  if (dumps == 0) WARN(no_dumps);
  if (dumps > 20) CHECK(enumerated > 10);
}

}  // namespace tensat_extraction_test
