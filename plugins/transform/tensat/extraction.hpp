// The cheapest acyclic choice of a node for each class that is needed. A node costs once, however many use it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "egraph.hpp"

namespace tensat {

/// Which node for which class: classes and nodes are numbered from 0 here, and know nothing of an e-graph.
struct Problem {
  struct Node {
    double cost = 0.0;  ///< finite, not negative
    std::uint32_t of = 0;
    std::vector<std::uint32_t> children;  ///< classes, sorted; one that is used twice stands there twice
  };
  std::vector<Node> nodes;
  std::vector<std::vector<std::uint32_t>> classes;  ///< their nodes
  std::vector<std::uint32_t> roots;

  /// Appends a node. Classes come about as they are named.
  std::uint32_t add(std::uint32_t of, double cost, std::vector<std::uint32_t> children);
  /// Throws std::invalid_argument for a cost that is none, or a root that is no class.
  void check() const;
};

/// A node for each class.
using Choice = std::vector<std::int32_t>;
inline constexpr std::int32_t unchosen = -1;

/// A choice that was walked through from the roots: nothing is missing, nothing cyclic. Classes that are not needed are unchosen.
struct Selection {
  Choice choice;
  double cost = 0.0;
  std::vector<std::uint32_t> order;  ///< its classes, those below before those above
};
/// Returns nothing for a choice that is cyclic or lacks a class. `cycles`, where given, receives the cycles that a walk comes upon:
/// classes, each of which uses the next, and the last the first.
using Cycle = std::vector<std::uint32_t>;
std::optional<Selection> verified(const Problem& problem, const Choice& choice,
                                  std::vector<Cycle>* cycles = nullptr);

/// The least cost of each class as a tree, in which what several use counts several times (Knuth, 1977).
Choice greedy(const Problem& problem);
/// The same with sets of nodes, in which it counts once. The choice may be cyclic, and verified() says so.
Choice greedy_dag(const Problem& problem);

enum class Order {
  none,  ///< cycles are cut off as they turn up
  real,  ///< a place in an order for each class that is in a cycle of classes
  integer
};

enum class SolverStatus { not_run, optimal, time_limit, infeasible, cyclic, inexact, failed };
std::string_view text_of(SolverStatus status);

struct IlpOptions {
  Order order = Order::none;
  double seconds = 3600.0;
  bool warm_start = true;  ///< from the choice that is given
};

/// What the integer program came to.
struct IlpReport {
  SolverStatus status = SolverStatus::not_run;
  double bound = 0.0;  ///< no acyclic choice costs less
  double gap = 0.0;    ///< between what is chosen and the bound, relative
  double first = 0.0;  ///< what the program without cuts came to, which may be cyclic
  int cuts = 0;        ///< cycles cut off
  double seconds = 0.0;
  std::size_t columns = 0, rows = 0;  ///< of the last program
};

/// A choice from a number for each node, near 1 for those that are taken: the integer next to it counts, none is cut off. `exact`
/// becomes false where one is not near an integer.
Choice rounded(const Problem& problem, std::span<const double> values, bool& exact);

struct IlpResult {
  std::optional<Selection> selection;
  IlpReport report;
};
/// By CBC. `start`, where given, is a choice to begin with.
IlpResult ilp(const Problem& problem, const IlpOptions& options, const Selection* start = nullptr);

enum class Extractor { greedy, greedy_dag, ilp };

/// The best of all that were found, and where it is from.
struct Extraction {
  Selection best;
  std::string_view from;                                 ///< "input", "greedy", "greedy_dag" or "ilp"
  std::optional<double> input, greedy, greedy_dag, ilp;  ///< costs of those that are acyclic
  IlpReport solver;
};
/// Tries the extractor and those before it. `input`, where given, is a choice that no result is worse than. Throws
/// std::invalid_argument where there is no acyclic choice at all.
Extraction extract(const Problem& problem, Extractor extractor, const IlpOptions& options = {},
                   const Choice* input = nullptr);

/// An e-graph as a problem: what its classes and nodes are there.
struct Extractable {
  Problem problem;
  std::vector<NodeId> nodes;     ///< by node of the problem
  std::vector<ClassId> classes;  ///< by class of the problem
  Choice input;  ///< the oldest node of each class: from the roots down the input, or what it shrank to
};
/// `costs` are by node of the graph, which was rebuilt.
Extractable problem_of(const EGraph& graph, std::span<const ClassId> roots, std::span<const double> costs);

/// The number of terms that can be extracted, as a power of 2: the product, over classes that can be come to, of their nodes.
double log2_programs(const Problem& problem);

}  // namespace tensat
