// Rewrites, all of them again and again, without taking anything out of the graph, until nothing is new or a limit is there.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "egraph.hpp"
#include "pattern.hpp"

namespace tensat {

/// Where all sources are found, with the same classes for the variables that they share, each is equal to its target.
struct Rule {
  /// Says of the classes of the variables whether the rule holds for them.
  using Condition = std::function<bool(const EGraph&, std::span<const ClassId>)>;
  std::string name;
  std::vector<Pattern> sources, targets;  ///< as many
  std::vector<std::string> variables;
  Condition condition;  ///< none: it holds
};

/// Reads "(* ?a 1) => ?a", and "SOURCE , SOURCE => TARGET , TARGET" of several. Throws std::invalid_argument that names the rule.
Rule parse_rule(std::string_view name, std::string_view text, Symbols& symbols);

enum class CycleFilter {
  none,
  vanilla,   ///< looks through the graph before each application
  efficient  ///< looks once an iteration, and breaks what came about in it
};

struct Limits {
  std::size_t nodes = 50'000;
  int iterations = 15;
  double seconds = 3600.0;
  int multi_iterations = 1;          ///< rules of several sources take part in so many, the first
  std::size_t matches = 20'000'000;  ///< of one rule in one iteration
  /// A rule of one source that finds more rests for 5 iterations, and for twice as many with twice as many matches the next time, as
  /// egg's scheduler has it; 0: none rests.
  std::size_t resting = 0;
  std::function<bool(const EGraph&)> reached;  ///< asked behind each iteration; none: it is not
};

enum class Stop { saturated, nodes, iterations, seconds, matches, reached };
std::string_view text_of(Stop stop);

/// The figures of one iteration.
struct Iteration {
  std::size_t nodes = 0, classes = 0;               ///< after it
  std::size_t matches = 0, applied = 0;             ///< found; those that changed the graph
  std::size_t refused = 0, cyclic = 0, broken = 0;  ///< by shapes; by the filter; nodes blacklisted behind it
  double search = 0.0, apply = 0.0, rebuild = 0.0, filter = 0.0;  ///< seconds
};

struct Saturation {
  Stop stop = Stop::saturated;
  std::vector<Iteration> iterations;
  double seconds = 0.0;
};

/// Rewrites. The roots are what will be extracted. With a filter no cycle can be come to from them behind it.
Saturation saturate(EGraph& graph, std::span<const Rule> rules, std::span<const ClassId> roots,
                    const Limits& limits, CycleFilter filter);

}  // namespace tensat
