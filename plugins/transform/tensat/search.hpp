// Looks for a cheaper graph: terms, rewrites, prices, the cheapest choice; and then times it beside the graph that is there, which stays
// where the other is not faster.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <trainyard/graph/graph.hpp>
#include <trainyard/manifest.hpp>

#include "extraction.hpp"
#include "prices.hpp"
#include "rewrite.hpp"
#include "terms.hpp"

namespace tensat {

/// Which graph is looked for, and how long.
struct Search {
  std::int64_t k_multi = 1;
  std::int64_t max_iterations = 10;
  std::int64_t max_nodes = 10'000;
  double seconds = 20.0;
  CycleFilter cycles = CycleFilter::efficient;
  Extractor extractor = Extractor::ilp;
  double ilp_seconds = 5.0;
  double min_gain = 0.03;
};

/// How a search went.
struct Found {
  bool taken = false;
  std::string reason;  ///< why it was taken, or not, for people
  Program program;     ///< where it was taken
  std::string hash;    ///< of the graph that it is
  std::size_t nodes = 0, classes = 0, opaque = 0, groups = 0, priced = 0, rules = 0;
  int iterations = 0;
  std::string stop;  ///< why the rewriting ended
  std::string from;  ///< which extraction was the best
  std::string solver = "not run";
  double gap = 0.0;                                         ///< of the solver
  double explored = 0.0, extracted = 0.0, measuring = 0.0;  ///< seconds
  double predicted_before = 0.0, predicted_after = 0.0,
         greedy = 0.0;               ///< of a pass, in seconds, by the sum of prices
  double before = 0.0, after = 0.0;  ///< measured: the least of a pass; 0: not measured
  double log2_programs = 0.0;
  std::vector<std::string> merged;  ///< nodes of the graph that the other has not

  double predicted_gain() const { return predicted_after > 0.0 ? predicted_before / predicted_after : 1.0; }
  double gain() const { return after > 0.0 ? before / after : 1.0; }
};

/// Looks for a graph that computes the same. `stop` ends it early, and the graph stays then.
Found find_cheaper(const trainyard::Graph& graph, const Way& way, const Search& search, PriceTable& prices,
                   const std::function<bool()>& stop = {});

/// Takes a program in place of the graph where it gives the same numbers and is faster as a whole.
void judge(const trainyard::Graph& graph, Program program, const Way& way, const Search& search, Found& found,
           const std::function<bool()>& stop = {});

/// The largest difference of what two graphs give for inputs made from a seed, relative to the largest number that the first gives.
double difference(const trainyard::Graph& a, const trainyard::Graph& b, std::int64_t samples,
                  std::uint64_t seed, bool doubles);

}  // namespace tensat

template <>
struct trainyard::Words<tensat::Extractor> {
  static constexpr std::string_view words[] = {"greedy", "greedy_dag", "ilp"};
};
template <>
struct trainyard::Words<tensat::CycleFilter> {
  static constexpr std::string_view words[] = {"none", "vanilla", "efficient"};
};
