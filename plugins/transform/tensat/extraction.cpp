#include "extraction.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <stdexcept>

namespace tensat {

std::uint32_t Problem::add(std::uint32_t of, double cost, std::vector<std::uint32_t> children) {
  std::ranges::sort(children);
  const std::uint32_t highest = children.empty() ? of : std::max(of, children.back());
  if (classes.size() <= highest) classes.resize(highest + std::size_t{1});
  const auto id = static_cast<std::uint32_t>(nodes.size());
  classes[of].push_back(id);
  nodes.push_back({cost, of, std::move(children)});
  return id;
}

void Problem::check() const {
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (!std::isfinite(nodes[i].cost) || nodes[i].cost < 0.0)
      throw std::invalid_argument("node " + std::to_string(i) + " costs " + std::to_string(nodes[i].cost) +
                                  ": expected a finite number that is not negative");
  if (roots.empty()) throw std::invalid_argument("there is no root to extract");
  for (const std::uint32_t root : roots)
    if (root >= classes.size()) throw std::invalid_argument("root " + std::to_string(root) + " is no class");
}

std::optional<Selection> verified(const Problem& problem, const Choice& choice, std::vector<Cycle>* cycles) {
  enum : std::uint8_t { unseen, open, done };
  struct Frame {
    std::uint32_t of;
    std::size_t child = 0;
  };
  Selection made{.choice = Choice(problem.classes.size(), unchosen)};
  std::vector<std::uint8_t> state(problem.classes.size(), unseen);
  std::vector<Frame> stack;
  const auto enter = [&](std::uint32_t of) {
    const std::int32_t node = of < choice.size() ? choice[of] : unchosen;
    if (node == unchosen || problem.nodes[static_cast<std::size_t>(node)].of != of) return false;
    state[of] = open;
    made.choice[of] = node;
    stack.push_back({of});
    return true;
  };
  for (const std::uint32_t root : problem.roots) {
    if (state[root] == done) continue;
    if (!enter(root)) return std::nullopt;
    while (!stack.empty()) {
      Frame& top = stack.back();
      const Problem::Node& node = problem.nodes[static_cast<std::size_t>(made.choice[top.of])];
      if (top.child == node.children.size()) {
        made.cost += node.cost;
        made.order.push_back(top.of);
        state[top.of] = done;
        stack.pop_back();
        continue;
      }
      const std::uint32_t next = node.children[top.child++];
      if (state[next] == done) continue;
      if (state[next] == open) {
        if (cycles == nullptr) return std::nullopt;
        Cycle& cycle = cycles->emplace_back();
        for (auto frame = stack.rbegin(); frame == stack.rbegin() || cycle.back() != next; ++frame)
          cycle.push_back(frame->of);
        std::ranges::reverse(cycle);  // from above
        continue;
      }
      if (!enter(next)) return std::nullopt;
    }
  }
  if (cycles != nullptr && !cycles->empty()) return std::nullopt;
  return made;
}

namespace {

std::vector<std::vector<std::uint32_t>> parents_of(const Problem& problem) {
  std::vector<std::vector<std::uint32_t>> parents(problem.classes.size());
  for (std::uint32_t node = 0; node < problem.nodes.size(); ++node)
    for (const std::uint32_t child : problem.nodes[node].children) parents[child].push_back(node);
  return parents;
}

constexpr double infinite = std::numeric_limits<double>::infinity();

}  // namespace

Choice greedy(const Problem& problem) {
  // Classes are settled from the cheapest on, each by a node whose children are: so the choice is acyclic, zeros or not.
  struct Offer {
    double cost;
    std::uint32_t node;
    bool operator>(const Offer& other) const {
      return cost != other.cost ? cost > other.cost : node > other.node;
    }
  };
  const auto parents = parents_of(problem);
  std::vector<double> sums;
  std::vector<std::size_t> missing;
  std::priority_queue<Offer, std::vector<Offer>, std::greater<>> offers;
  for (std::uint32_t node = 0; node < problem.nodes.size(); ++node) {
    sums.push_back(problem.nodes[node].cost);
    missing.push_back(problem.nodes[node].children.size());
    if (missing.back() == 0) offers.push({sums.back(), node});
  }
  Choice choice(problem.classes.size(), unchosen);
  while (!offers.empty()) {
    const Offer offer = offers.top();
    offers.pop();
    const std::uint32_t of = problem.nodes[offer.node].of;
    if (choice[of] != unchosen) continue;
    choice[of] = static_cast<std::int32_t>(offer.node);
    for (const std::uint32_t parent : parents[of]) {
      sums[parent] += offer.cost;
      if (--missing[parent] == 0) offers.push({sums[parent], parent});
    }
  }
  return choice;
}

namespace {

/// A class with all that is below it: nodes by class, in the order of the classes.
struct Cone {
  double cost = infinite;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> nodes;
};

/// Returns the cone of a node, or none where it is not below `limit`, not complete, or the class is below itself.
std::optional<Cone> cone_of(const Problem& problem, const std::vector<Cone>& cones, std::uint32_t which,
                            double limit) {
  const Problem::Node& node = problem.nodes[which];
  Cone made{.cost = node.cost, .nodes = {{node.of, which}}};
  for (const std::uint32_t child : node.children) {
    const Cone& below = cones[child];
    if (below.cost == infinite) return std::nullopt;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> both;
    both.reserve(made.nodes.size() + below.nodes.size());
    auto here = made.nodes.begin();
    for (const auto& each : below.nodes) {
      if (each.first == node.of) return std::nullopt;
      while (here != made.nodes.end() && here->first < each.first) both.push_back(*here++);
      if (here != made.nodes.end() && here->first == each.first) continue;
      both.push_back(each);
      made.cost += problem.nodes[each.second].cost;
      if (made.cost >= limit) return std::nullopt;
    }
    both.insert(both.end(), here, made.nodes.end());
    made.nodes = std::move(both);
  }
  if (made.cost >= limit) return std::nullopt;
  return made;
}

}  // namespace

Choice greedy_dag(const Problem& problem) {
  const auto parents = parents_of(problem);
  std::vector<Cone> cones(problem.classes.size());
  std::queue<std::uint32_t> todo;
  std::vector<bool> queued(problem.nodes.size(), false);
  for (std::uint32_t node = 0; node < problem.nodes.size(); ++node)
    if (problem.nodes[node].children.empty()) {
      todo.push(node);
      queued[node] = true;
    }
  while (!todo.empty()) {
    const std::uint32_t which = todo.front();
    todo.pop();
    queued[which] = false;
    const std::uint32_t of = problem.nodes[which].of;
    // Sums in another order differ in their last digits, which would be a gain for ever.
    const double limit = cones[of].cost == infinite ? infinite : cones[of].cost * (1.0 - 1e-12);
    auto better = cone_of(problem, cones, which, limit);
    if (!better) continue;
    cones[of] = std::move(*better);
    for (const std::uint32_t parent : parents[of])
      if (!queued[parent]) {
        todo.push(parent);
        queued[parent] = true;
      }
  }
  Choice choice(problem.classes.size(), unchosen);
  for (const std::uint32_t root : problem.roots)
    for (const auto& [of, node] : cones[root].nodes)
      if (choice[of] == unchosen) choice[of] = static_cast<std::int32_t>(node);
  return choice;
}

std::string_view text_of(SolverStatus status) {
  switch (status) {
    case SolverStatus::not_run: return "not run";
    case SolverStatus::optimal: return "optimal";
    case SolverStatus::time_limit: return "time limit";
    case SolverStatus::infeasible: return "infeasible";
    case SolverStatus::cyclic: return "cyclic";
    case SolverStatus::inexact: return "inexact";
    case SolverStatus::failed: return "failed";
  }
  return "";
}

Choice rounded(const Problem& problem, std::span<const double> values, bool& exact) {
  Choice choice(problem.classes.size(), unchosen);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::abs(values[i] - std::round(values[i])) > 1e-4) exact = false;
    if (values[i] > 0.5) choice[problem.nodes[i].of] = static_cast<std::int32_t>(i);
  }
  return choice;
}

Extraction extract(const Problem& problem, Extractor extractor, const IlpOptions& options,
                   const Choice* input) {
  problem.check();
  Extraction made{.best = {.cost = infinite}};
  const auto offer = [&](std::string_view from, std::optional<Selection> each) -> std::optional<double> {
    if (!each) return std::nullopt;
    const double cost = each->cost;
    if (cost < made.best.cost) {
      made.best = std::move(*each);
      made.from = from;
    }
    return cost;
  };
  if (input != nullptr) made.input = offer("input", verified(problem, *input));
  made.greedy = offer("greedy", verified(problem, greedy(problem)));
  if (extractor != Extractor::greedy)
    made.greedy_dag = offer("greedy_dag", verified(problem, greedy_dag(problem)));
  if (made.from.empty())
    throw std::invalid_argument("no acyclic choice of nodes makes all that the roots need");
  if (extractor == Extractor::ilp) {
    IlpResult solved = ilp(problem, options, &made.best);
    made.solver = solved.report;
    made.ilp = offer("ilp", std::move(solved.selection));
  }
  return made;
}

Extractable problem_of(const EGraph& graph, std::span<const ClassId> roots, std::span<const double> costs) {
  constexpr std::uint32_t none = 0xffffffff;
  const Index index(graph);
  Extractable made;
  std::vector<std::uint32_t> number(graph.classes_made(), none);
  const auto reach = [&](ClassId of) {
    of = graph.find(of);
    if (number[of] == none) {
      number[of] = static_cast<std::uint32_t>(made.classes.size());
      made.classes.push_back(of);
    }
    return number[of];
  };
  for (const ClassId root : roots) made.problem.roots.push_back(reach(root));
  for (std::size_t i = 0; i < made.classes.size(); ++i) {
    std::vector<NodeId> nodes;
    for (const Index::Entry& entry : index.nodes(made.classes[i])) nodes.push_back(entry.node);
    std::ranges::sort(nodes);
    for (const NodeId node : nodes) {
      std::vector<std::uint32_t> children;
      for (const ClassId child : graph.children(node)) children.push_back(reach(child));
      made.nodes.push_back(node);
      made.problem.add(static_cast<std::uint32_t>(i), costs[node], std::move(children));
    }
  }
  made.problem.classes.resize(made.classes.size());
  for (const auto& nodes : made.problem.classes)
    made.input.push_back(nodes.empty() ? unchosen : static_cast<std::int32_t>(nodes.front()));
  return made;
}

double log2_programs(const Problem& problem) {
  std::vector<bool> seen(problem.classes.size(), false);
  std::vector<std::uint32_t> todo;
  for (const std::uint32_t root : problem.roots)
    if (!seen[root]) {
      seen[root] = true;
      todo.push_back(root);
    }
  double sum = 0.0;
  while (!todo.empty()) {
    const std::uint32_t of = todo.back();
    todo.pop_back();
    if (!problem.classes[of].empty()) sum += std::log2(static_cast<double>(problem.classes[of].size()));
    for (const std::uint32_t node : problem.classes[of])
      for (const std::uint32_t child : problem.nodes[node].children)
        if (!seen[child]) {
          seen[child] = true;
          todo.push_back(child);
        }
  }
  return sum;
}

}  // namespace tensat
