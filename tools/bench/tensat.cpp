// E-graphs by themselves: egg's rules of mathematics, iteration by iteration, and extraction from dumps of extraction-gym.
//   trainyard bench tensat                       iterations of the rules, to a line each
//   bench_tensat --json [--iterations N] [--nodes N]
//                          the same as tools/bench/tensat.py reads it
//   bench_tensat --dumps FOLDER [--seconds S] [--orders]
//                          each extractor on each dump in a folder and those below it; --orders: by order variables, too
//   bench_tensat --filters [--steps 5] [--pairs 8] [--multi 2] [--seconds S]
//                          vanilla and efficient filter on a recurrent cell's graph
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "plugins/transform/tensat/extraction.hpp"
#include "plugins/transform/tensat/rewrite.hpp"
#include "tests/support/egraph_dump.hpp"
#include "tests/support/math_rules.hpp"
#include "tests/support/recurrent_graph.hpp"

namespace {

using namespace tensat;

void mathematics(int iterations, std::size_t nodes, bool json) {
  math_rules::Constants constants(false);
  EGraph graph(&constants);
  const auto rules = math_rules::rules(graph, constants, false);
  for (const char* const term : math_rules::terms) graph.add_term(term);
  const std::clock_t begin = std::clock();
  // A limit of matches would end an iteration with what it has.
  const Saturation report =
      saturate(graph, rules, {}, {.nodes = nodes, .iterations = iterations, .matches = 4'000'000'000},
               CycleFilter::none);
  nlohmann::json written = {{"rules", nlohmann::json::array()}, {"terms", math_rules::terms}};
  for (const math_rules::Row& row : math_rules::rows)
    if (math_rules::lasts(row)) written["rules"].push_back({row.text, row.condition});
  double seconds = 0.0;
  for (const Iteration& each : report.iterations) {
    const double own = each.search + each.apply + each.rebuild;
    seconds += own;
    written["iterations"].push_back(
        {{"nodes", each.nodes}, {"classes", each.classes}, {"seconds", own}, {"matches", each.matches}});
    if (!json)
      std::cout << each.nodes << " nodes, " << each.classes << " classes, " << each.matches
                << " matches: search " << each.search << " s, apply " << each.apply << ", rebuild "
                << each.rebuild << '\n';
  }
  written["stop"] = text_of(report.stop);
  written["seconds"] = report.seconds;
  written["processor"] = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  if (json)
    std::cout << written << '\n';
  else
    std::cout << report.seconds << " s in all, " << seconds << " in iterations\n";
}

/// Counts of a kind of dumps, which is the folder that they are in.
struct Kind {
  int dumps = 0, refused = 0, optimal = 0, better = 0, cyclic = 0, dearer = 0;
  double seconds = 0.0;
};

/// Says of each dump what each extractor comes to, and of each kind how many had the optimum proved, were better than greedy_dag, and came
/// out cyclic or dearer than another extractor, which none may. Costs below 0 are refused. Returns whether none did.
bool dumps(const std::filesystem::path& folder, double limit, bool orders) {
  std::map<std::string, Kind> kinds;
  for (const std::filesystem::path& file : egraph_dump::files_in(folder)) {
    const Problem problem = egraph_dump::read(file);
    Kind& kind = kinds[file.parent_path().filename().string()];
    ++kind.dumps;
    std::cout << file.parent_path().filename().string() << '/' << file.filename().string() << ": "
              << problem.nodes.size() << " nodes, " << problem.classes.size() << " classes, 2^"
              << log2_programs(problem) << " programs\n";
    if (std::ranges::any_of(problem.nodes, [](const Problem::Node& each) { return each.cost < 0.0; })) {
      ++kind.refused;
      std::cout << "  refused: a node costs less than nothing\n";
      continue;
    }
    for (const Order order : {Order::none, Order::real, Order::integer}) {
      if (order != Order::none && !orders) continue;
      const Extraction made = extract(problem, Extractor::ilp, {.order = order, .seconds = limit});
      const auto text = [](const std::optional<double>& cost) {
        return cost ? std::to_string(*cost) : std::string("cyclic");
      };
      const auto walked = egraph_dump::cost_of(problem, made.best.choice);
      const double others = std::min(*made.greedy, made.greedy_dag.value_or(*made.greedy));
      kind.optimal += made.solver.status == SolverStatus::optimal;
      kind.better += made.best.cost < others * (1.0 - 1e-9);
      kind.cyclic += !walked || std::abs(*walked - made.best.cost) > 1e-9 * (1.0 + *walked);
      kind.dearer += made.best.cost > others ||
                     (made.solver.status == SolverStatus::optimal && *made.ilp > others * (1.0 + 1e-9));
      kind.seconds += made.solver.seconds;
      std::cout << "  order " << static_cast<int>(order) << ": greedy " << text(made.greedy)
                << ", greedy_dag " << text(made.greedy_dag) << ", ilp " << text(made.ilp) << " ("
                << text_of(made.solver.status) << ", first " << made.solver.first << ", bound "
                << made.solver.bound << ", gap " << made.solver.gap << ", " << made.solver.cuts << " cuts, "
                << made.solver.rows << " x " << made.solver.columns << ", " << made.solver.seconds
                << " s); best " << std::to_string(made.best.cost) << " by " << made.from << std::endl;
    }
  }
  bool right = true;
  for (const auto& [name, kind] : kinds) {
    std::cout << name << ": " << kind.dumps << " dumps, " << kind.refused << " refused, " << kind.optimal
              << " optimal, " << kind.better << " better than greedy_dag, " << kind.cyclic << " cyclic, "
              << kind.dearer << " dearer, " << kind.seconds << " s of solving\n";
    right = right && kind.cyclic == 0 && kind.dearer == 0;
  }
  return right;
}

void filters(int steps, int pairs, int multi, double seconds) {
  for (const CycleFilter filter : {CycleFilter::efficient, CycleFilter::vanilla}) {
    EGraph graph;
    const auto roots = recurrent_graph::recurrent(graph, steps, pairs);
    graph.rebuild();
    graph.seal_input();
    const Saturation report =
        saturate(graph, recurrent_graph::merging(graph), roots,
                 {.nodes = 1'000'000, .iterations = 3, .seconds = 300.0, .multi_iterations = multi}, filter);
    const Extractable made = problem_of(graph, roots, recurrent_graph::costs(graph));
    const Extraction found = extract(made.problem, Extractor::ilp, {.seconds = seconds}, &made.input);
    double filtered = 0.0;
    for (const Iteration& each : report.iterations) filtered += each.filter;
    std::cout << (filter == CycleFilter::vanilla ? "vanilla" : "efficient") << ": " << graph.node_count()
              << " nodes, " << graph.class_count() << " classes, stopped by " << text_of(report.stop) << ", "
              << report.seconds << " s, of which the filter " << filtered << "; cost " << *found.input
              << " to " << found.best.cost << " by " << found.from << " (" << text_of(found.solver.status)
              << ", " << found.solver.seconds << " s)" << std::endl;
  }
}

}  // namespace

int main(int count, char** words) {
  const auto has = [&](const char* word) {
    for (int i = 1; i < count; ++i)
      if (std::strcmp(words[i], word) == 0) return i;
    return 0;
  };
  const auto number = [&](const char* word, long otherwise) {
    const int at = has(word);
    return at != 0 ? std::stol(words[at + 1]) : otherwise;
  };
  const auto seconds = static_cast<double>(number("--seconds", 30));
  if (const int at = has("--dumps")) {
    return dumps(words[at + 1], seconds, has("--orders") != 0) ? 0 : 1;
  } else if (has("--filters") != 0) {
    const auto small = [&](const char* word, int otherwise) {
      return static_cast<int>(number(word, otherwise));
    };
    filters(small("--steps", 5), small("--pairs", 8), small("--multi", 2), seconds);
  } else {
    const bool quick = has("--quick") != 0;
    mathematics(static_cast<int>(number("--iterations", quick ? 5 : 30)),
                static_cast<std::size_t>(number("--nodes", quick ? 20'000 : 1'000'000)), has("--json") != 0);
    if (quick) filters(2, 3, 2, 0.5);
  }
}
