// The choice of nodes as an integer program, solved by CBC (https://github.com/coin-or/Cbc, EPL-2.0): Yang et al., MLSys 2021,
// section 5.1, written by classes: what a class asks of another one is a row, where the paper has one for each node.
#include <Cbc_C_Interface.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "extraction.hpp"
#include "lib/apart.hpp"
#include "stopwatch.hpp"

namespace tensat {
namespace {

/// A problem without what no best choice needs.
struct Reduced {
  Problem problem;                   // classes have their numbers of before
  std::vector<std::uint32_t> nodes;  // by node: its number of before
  Choice free;                       // classes that cost nothing, by a node that needs nothing
};

class Reduction {
 public:
  explicit Reduction(const Problem& problem)
      : of_(problem), alive_(problem.nodes.size(), true), free_(problem.classes.size(), unchosen) {
    for (const Problem::Node& node : problem.nodes) {
      children_.push_back(node.children);
      children_.back().erase(std::ranges::unique(children_.back()).begin(), children_.back().end());
    }
    count_.resize(problem.classes.size());
  }

  Reduced run() {
    for (std::uint32_t node = 0; node < alive_.size(); ++node)
      if (std::ranges::binary_search(children_[node], of_.nodes[node].of)) alive_[node] = false;
    while (drop_incomplete() || drop_free() || drop_dominated()) {}
    return what_is_left();
  }

 private:
  bool drop_incomplete() {
    std::ranges::fill(count_, std::size_t{0});
    for (std::uint32_t node = 0; node < alive_.size(); ++node)
      if (alive_[node]) ++count_[of_.nodes[node].of];
    bool changed = false;
    for (std::uint32_t node = 0; node < alive_.size(); ++node) {
      const bool whole =
          std::ranges::all_of(children_[node], [&](std::uint32_t child) { return count_[child] > 0; });
      if (!alive_[node] || whole) continue;
      alive_[node] = false;
      changed = true;
    }
    return changed;
  }

  bool drop_free() {
    bool changed = false;
    for (std::uint32_t node = 0; node < alive_.size(); ++node) {
      if (!alive_[node]) continue;
      changed =
          std::erase_if(children_[node], [&](std::uint32_t child) { return free_[child] != unchosen; }) > 0 ||
          changed;
      std::int32_t& own = free_[of_.nodes[node].of];
      if (own != unchosen || of_.nodes[node].cost > 0.0 || !children_[node].empty()) continue;
      own = static_cast<std::int32_t>(node);
      changed = true;
    }
    return changed;
  }

  /// Of two nodes of a class, one that costs no less and needs all that the other one needs is never better.
  bool drop_dominated() {
    bool changed = false;
    for (const std::vector<std::uint32_t>& nodes : of_.classes) {
      if (nodes.size() > 1000) continue;
      for (const std::uint32_t a : nodes)
        for (const std::uint32_t b : nodes) {
          if (a == b || !alive_[a] || !alive_[b] || of_.nodes[a].cost > of_.nodes[b].cost) continue;
          if (children_[a].size() > children_[b].size() || !std::ranges::includes(children_[b], children_[a]))
            continue;
          alive_[b] = false;
          changed = true;
        }
    }
    return changed;
  }

  Reduced what_is_left() {
    Reduced made{.free = free_};
    made.problem.classes.resize(of_.classes.size());
    std::vector<bool> seen(of_.classes.size(), false);
    std::vector<std::uint32_t> todo;
    const auto reach = [&](std::uint32_t of) {
      if (free_[of] != unchosen || seen[of]) return;
      seen[of] = true;
      todo.push_back(of);
    };
    for (const std::uint32_t root : of_.roots) {
      reach(root);
      if (free_[root] == unchosen) made.problem.roots.push_back(root);
    }
    while (!todo.empty()) {
      const std::uint32_t of = todo.back();
      todo.pop_back();
      for (const std::uint32_t node : of_.classes[of]) {
        if (!alive_[node]) continue;
        made.nodes.push_back(node);
        made.problem.add(of, of_.nodes[node].cost, children_[node]);
        for (const std::uint32_t child : children_[node]) reach(child);
      }
    }
    return made;
  }

  const Problem& of_;
  std::vector<bool> alive_;
  std::vector<std::vector<std::uint32_t>> children_;
  Choice free_;
  std::vector<std::size_t> count_;
};

/// A number for each class that is the same for those of a cycle of classes alone (Tarjan, 1972), and how many have it.
struct Components {
  std::vector<std::uint32_t> of, size;
};

Components components(const Problem& problem) {
  constexpr std::uint32_t none = 0xffffffff;
  struct Frame {
    std::uint32_t of;
    std::size_t node = 0, child = 0;
  };
  const std::size_t count = problem.classes.size();
  Components made{std::vector<std::uint32_t>(count, none), {}};
  std::vector<std::uint32_t> number(count, none), low(count, 0), open;
  std::uint32_t next = 0;
  std::vector<Frame> stack;
  const auto enter = [&](std::uint32_t of) {
    number[of] = low[of] = next++;
    open.push_back(of);
    stack.push_back({of});
  };
  const auto leave = [&](std::uint32_t of) {
    stack.pop_back();
    if (!stack.empty()) low[stack.back().of] = std::min(low[stack.back().of], low[of]);
    if (low[of] != number[of]) return;
    made.size.push_back(0);
    for (std::uint32_t each = none; each != of; open.pop_back()) {
      each = open.back();
      made.of[each] = static_cast<std::uint32_t>(made.size.size()) - 1;
      ++made.size.back();
    }
  };
  for (const std::uint32_t root : problem.roots) {
    if (number[root] == none) enter(root);
    while (!stack.empty()) {
      Frame& top = stack.back();
      const std::vector<std::uint32_t>& nodes = problem.classes[top.of];
      if (top.node == nodes.size()) {
        leave(top.of);
        continue;
      }
      const std::vector<std::uint32_t>& children = problem.nodes[nodes[top.node]].children;
      if (top.child == children.size()) {
        ++top.node;
        top.child = 0;
        continue;
      }
      const std::uint32_t child = children[top.child++];
      if (number[child] == none)
        enter(child);
      else if (made.of[child] == none)
        low[top.of] = std::min(low[top.of], number[child]);
    }
  }
  return made;
}

struct Entry {
  int column = 0;
  double value = 0.0;
};

/// A program of rows, each between two bounds.
struct Program {
  struct Column {
    double cost = 0.0, upper = 1.0;
    bool integer = true;
  };
  struct Row {
    std::vector<Entry> entries;
    double lower = -std::numeric_limits<double>::infinity(), upper = std::numeric_limits<double>::infinity();
  };
  std::vector<Column> columns;
  std::vector<Row> rows;
};

struct Solution {
  SolverStatus status = SolverStatus::failed;
  double bound = 0.0;
  std::vector<double> values;  // none: it found none
};

/// Nodes of a class that need another one, as the entries of a row.
std::vector<Entry> asking(const Problem& problem, std::uint32_t of, std::uint32_t child) {
  std::vector<Entry> found;
  for (const std::uint32_t node : problem.classes[of])
    if (std::ranges::binary_search(problem.nodes[node].children, child))
      found.push_back({static_cast<int>(node), 1.0});
  return found;
}

class Writer {
 public:
  Writer(const Problem& problem, Order order, double scale)
      : of_(problem), order_(order), components_(components(problem)) {
    for (const Problem::Node& node : problem.nodes) made_.columns.push_back({.cost = node.cost * scale});
    place_.assign(problem.classes.size(), -1);
  }

  Program run() {
    std::vector<std::uint32_t> classes;
    for (std::uint32_t of = 0; of < of_.classes.size(); ++of)
      if (!of_.classes[of].empty()) classes.push_back(of);
    if (order_ != Order::none)
      for (const std::uint32_t of : classes) add_place(of);
    for (const std::uint32_t of : classes) {
      const bool root = std::ranges::find(of_.roots, of) != of_.roots.end();
      if (root || of_.classes[of].size() > 1)
        made_.rows.push_back({.entries = nodes_of(of, 1.0), .lower = root ? 1.0 : 0.0, .upper = 1.0});
      std::vector<std::uint32_t> asked;
      for (const std::uint32_t node : of_.classes[of])
        asked.insert(asked.end(), of_.nodes[node].children.begin(), of_.nodes[node].children.end());
      std::ranges::sort(asked);
      asked.erase(std::ranges::unique(asked).begin(), asked.end());
      for (const std::uint32_t child : asked) add_need(of, child);
    }
    return std::move(made_);
  }

  /// The place of each class in an order, as a column; -1: it has none.
  const std::vector<int>& places() const { return place_; }
  double step(std::uint32_t of) const { return order_ == Order::real ? 1.0 / size(of) : 1.0; }

 private:
  double size(std::uint32_t of) const { return components_.size[components_.of[of]]; }

  std::vector<Entry> nodes_of(std::uint32_t of, double value) const {
    std::vector<Entry> made;
    for (const std::uint32_t node : of_.classes[of]) made.push_back({static_cast<int>(node), value});
    return made;
  }

  void add_place(std::uint32_t of) {
    if (size(of) < 2.0) return;
    place_[of] = static_cast<int>(made_.columns.size());
    made_.columns.push_back(
        {.upper = order_ == Order::real ? 1.0 : size(of) - 1.0, .integer = order_ == Order::integer});
  }

  void add_need(std::uint32_t of, std::uint32_t child) {
    Program::Row need{.entries = asking(of_, of, child), .upper = 0.0};
    if (place_[of] >= 0 && place_[child] >= 0 && components_.of[of] == components_.of[child]) {
      // A class that uses another one comes behind it, by a step.
      const double most = order_ == Order::real ? 1.0 : size(of) - 1.0, large = most + step(of);
      Program::Row behind{.entries = need.entries, .upper = large - step(of)};
      for (Entry& entry : behind.entries) entry.value = large;
      behind.entries.push_back({place_[of], -1.0});
      behind.entries.push_back({place_[child], 1.0});
      made_.rows.push_back(std::move(behind));
    }
    const std::vector<Entry> given = nodes_of(child, -1.0);
    need.entries.insert(need.entries.end(), given.begin(), given.end());
    made_.rows.push_back(std::move(need));
  }

  const Problem& of_;
  Order order_;
  Components components_;
  Program made_;
  std::vector<int> place_;
};

Solution solve(const Program& program, double seconds, const std::vector<double>& start) {
  std::vector<std::vector<Entry>> by_column(program.columns.size());
  std::vector<double> row_lower, row_upper, upper, cost;
  for (std::size_t row = 0; row < program.rows.size(); ++row) {
    for (const Entry& entry : program.rows[row].entries)
      by_column[static_cast<std::size_t>(entry.column)].push_back({static_cast<int>(row), entry.value});
    row_lower.push_back(program.rows[row].lower);
    row_upper.push_back(program.rows[row].upper);
  }
  std::vector<CoinBigIndex> begins{0};
  std::vector<int> indices;
  std::vector<double> values;
  for (std::size_t column = 0; column < by_column.size(); ++column) {
    for (const Entry& entry : by_column[column]) {
      indices.push_back(entry.column);
      values.push_back(entry.value);
    }
    begins.push_back(static_cast<CoinBigIndex>(indices.size()));
    upper.push_back(program.columns[column].upper);
    cost.push_back(program.columns[column].cost);
  }
  const std::vector<double> lower(program.columns.size(), 0.0);
  const std::unique_ptr<Cbc_Model, decltype(&Cbc_deleteModel)> model(Cbc_newModel(), &Cbc_deleteModel);
  Cbc_loadProblem(model.get(), static_cast<int>(program.columns.size()),
                  static_cast<int>(program.rows.size()), begins.data(), indices.data(), values.data(),
                  lower.data(), upper.data(), cost.data(), row_lower.data(), row_upper.data());
  for (std::size_t column = 0; column < program.columns.size(); ++column)
    if (program.columns[column].integer) Cbc_setInteger(model.get(), static_cast<int>(column));
  Cbc_setLogLevel(model.get(), 0);
  // Its own are 1e-5 for what a better solution gains at least, and seconds of processor time.
  Cbc_setParameter(model.get(), "increment", "1e-9");
  Cbc_setParameter(model.get(), "allowableGap", "1e-9");
  Cbc_setParameter(model.get(), "ratioGap", "0");
  Cbc_setParameter(model.get(), "timeMode", "elapsed");
  Cbc_setParameter(model.get(), "seconds", std::to_string(std::max(0.01, seconds)).c_str());
  if (!start.empty()) {
    std::vector<int> all;
    for (std::size_t i = 0; i < start.size(); ++i) all.push_back(static_cast<int>(i));
    Cbc_setMIPStartI(model.get(), static_cast<int>(all.size()), all.data(), start.data());
  }
  Cbc_solve(model.get());
  Solution made{.bound = Cbc_getBestPossibleObjValue(model.get())};
  if (Cbc_isProvenInfeasible(model.get()) != 0) {
    made.status = SolverStatus::infeasible;
    return made;
  }
  if (const double* best = Cbc_bestSolution(model.get()); best != nullptr)
    made.values.assign(best, best + program.columns.size());
  if (Cbc_isProvenOptimal(model.get()) != 0 && Cbc_isSecondsLimitReached(model.get()) == 0)
    made.status = SolverStatus::optimal;
  else if (Cbc_isSecondsLimitReached(model.get()) != 0)
    made.status = SolverStatus::time_limit;
  return made;
}

/// The same in a process of its own. CBC looks at the clock rarely in large programs; and where its time is up as it prepares a program,
/// version 2.10.8 reads a null pointer (CglPreProcess::postProcess). Without that preparation solves of small programs failed.
Solution solve_apart(const Program& program, double seconds, const std::vector<double>& start) {
  const auto compute = [&] {
    const Solution made = solve(program, seconds, start);
    std::string bytes(sizeof(double) * (2 + made.values.size()), '\0');
    const double head[] = {static_cast<double>(made.status), made.bound};
    std::memcpy(bytes.data(), head, sizeof(head));
    if (!made.values.empty())
      std::memcpy(bytes.data() + sizeof(head), made.values.data(), sizeof(double) * made.values.size());
    return bytes;
  };
  using trainyard::lib::Apart;
  const Apart apart = trainyard::lib::computed_apart(compute, seconds * 1.2 + 0.5);
  if (apart.end == Apart::End::late) return {.status = SolverStatus::time_limit};
  if (apart.end != Apart::End::returned) return {.status = SolverStatus::failed};
  std::vector<double> numbers(apart.bytes.size() / sizeof(double));
  std::memcpy(numbers.data(), apart.bytes.data(), apart.bytes.size());
  return {.status = static_cast<SolverStatus>(static_cast<int>(numbers[0])),
          .bound = numbers[1],
          .values = {numbers.begin() + 2, numbers.end()}};
}

/// A choice of the whole problem as values of the columns. Nothing where it needs a node that was left out.
std::vector<double> start_of(const Program& program, const Reduced& reduced, const Selection& from,
                             const Writer& writer) {
  std::vector<double> values(program.columns.size(), 0.0);
  std::map<std::uint32_t, std::size_t> node;
  for (std::size_t i = 0; i < reduced.nodes.size(); ++i) node[reduced.nodes[i]] = i;
  Choice choice(from.choice.size(), unchosen);
  for (std::uint32_t of = 0; of < choice.size(); ++of) {
    if (from.choice[of] == unchosen || reduced.free[of] != unchosen) continue;
    const auto known = node.find(static_cast<std::uint32_t>(from.choice[of]));
    if (known != node.end()) choice[of] = static_cast<std::int32_t>(known->second);
  }
  const auto left = verified(reduced.problem, choice);
  if (!left) return {};
  std::map<int, double> highest;
  for (std::size_t i = 0; i < left->order.size(); ++i) {
    const std::uint32_t of = left->order[i];
    values[static_cast<std::size_t>(left->choice[of])] = 1.0;
    const int place = writer.places()[of];
    if (place < 0) continue;
    double behind = 0.0;
    for (const std::uint32_t child :
         reduced.problem.nodes[static_cast<std::size_t>(left->choice[of])].children)
      if (const int other = writer.places()[child]; other >= 0 && writer.step(child) == writer.step(of))
        behind = std::max(behind, values[static_cast<std::size_t>(other)] + writer.step(of));
    values[static_cast<std::size_t>(place)] =
        std::min(behind, program.columns[static_cast<std::size_t>(place)].upper);
  }
  return values;
}

/// What a program says, as a choice of the whole problem.
Choice choice_of(const Reduced& reduced, const std::vector<double>& values, bool& exact) {
  const Choice left = rounded(reduced.problem, std::span(values).first(reduced.nodes.size()), exact);
  Choice choice = reduced.free;
  for (std::size_t of = 0; of < left.size(); ++of)
    if (left[of] != unchosen)
      choice[of] = static_cast<std::int32_t>(reduced.nodes[static_cast<std::size_t>(left[of])]);
  return choice;
}

}  // namespace

IlpResult ilp(const Problem& problem, const IlpOptions& options, const Selection* start) {
  problem.check();
  const Clock::time_point begin = Clock::now();
  IlpResult made;
  IlpReport& report = made.report;
  const Reduced reduced = Reduction(problem).run();
  double total = 0.0;
  for (const Problem::Node& node : reduced.problem.nodes) total += node.cost;
  // Its tolerances are absolute ones.
  const double scale = start != nullptr && start->cost > 0.0 ? 100.0 / start->cost
                       : total > 0.0                         ? 100.0 / total
                                                             : 1.0;
  Writer writer(reduced.problem, options.order, scale);
  Program program = writer.run();
  const std::vector<double> from = start != nullptr && options.warm_start
                                       ? start_of(program, reduced, *start, writer)
                                       : std::vector<double>{};
  for (bool first = true;; first = false) {
    report.columns = program.columns.size();
    report.rows = program.rows.size();
    Solution solved;
    if (program.columns.empty()) {
      solved.status = reduced.problem.roots.empty() ? SolverStatus::optimal : SolverStatus::infeasible;
    } else {
      solved = solve_apart(program, std::max(0.01, options.seconds - seconds_since(begin)), from);
    }
    report.status = solved.status;
    if (solved.status == SolverStatus::optimal || solved.status == SolverStatus::time_limit)
      report.bound = std::max(report.bound, solved.bound / scale);
    if (solved.status == SolverStatus::failed || (solved.values.empty() && !program.columns.empty())) break;
    bool exact = true;
    std::vector<Cycle> cycles;
    const Choice choice = choice_of(reduced, solved.values, exact);
    made.selection = verified(problem, choice, &cycles);
    double cost = 0.0;
    for (std::size_t i = 0; i < reduced.nodes.size(); ++i)
      if (solved.values[i] > 0.5) cost += reduced.problem.nodes[i].cost;
    if (first) report.first = cost;
    if (made.selection) {
      // Nodes that no root needs may stand in a solution that is not the best.
      const double said =
          solved.status == SolverStatus::optimal ? std::min(cost, solved.bound / scale) : cost;
      if (!exact || made.selection->cost > said * (1.0 + 1e-6) + 1e-9 / scale)
        report.status = SolverStatus::inexact;
      break;
    }
    report.status = cycles.empty() ? SolverStatus::inexact : SolverStatus::cyclic;
    if (cycles.empty() || options.order != Order::none || seconds_since(begin) > options.seconds) break;
    for (const Cycle& cycle : cycles) {
      Program::Row cut{.upper = static_cast<double>(cycle.size()) - 1.0};
      for (std::size_t i = 0; i < cycle.size(); ++i)
        for (const Entry& entry : asking(reduced.problem, cycle[i], cycle[(i + 1) % cycle.size()]))
          cut.entries.push_back(entry);
      program.rows.push_back(std::move(cut));
      ++report.cuts;
    }
  }
  double best = made.selection ? made.selection->cost : std::numeric_limits<double>::infinity();
  if (start != nullptr) best = std::min(best, start->cost);
  if (report.status == SolverStatus::optimal) report.bound = best;
  report.gap = best > 0.0 && std::isfinite(best) ? std::max(0.0, best - report.bound) / best : 0.0;
  report.seconds = seconds_since(begin);
  return made;
}

}  // namespace tensat
