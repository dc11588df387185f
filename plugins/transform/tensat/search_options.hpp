// The options of a search, which the transform and the tool share.
#pragma once

#include <cstdint>

#include <trainyard/manifest.hpp>

#include "search.hpp"

namespace tensat {

enum class Use : std::uint8_t { training, inference };

/// The options of a search; those of a plugin begin with them.
struct SearchOptions {
  std::int64_t k_multi = Search().k_multi, max_iterations = Search().max_iterations,
               max_nodes = Search().max_nodes;
  double seconds = Search().seconds, ilp_seconds = Search().ilp_seconds, min_gain = Search().min_gain;
  CycleFilter cycle_filter = CycleFilter::efficient;
  Extractor extractor = Extractor::ilp;
  Use use = Use::training;
};

/// Adds them to a plugin, but `use`, which each says in its own words.
template <class Options>
void describe_search(trainyard::Manifest<Options>& m) {
  m.option("k_multi", &Options::k_multi,
           "first iterations in which products of one input are merged; 0: they are not")
      .range(0, 4);
  m.option("max_iterations", &Options::max_iterations, "most iterations of all rules").range(1, 100);
  m.option("max_nodes", &Options::max_nodes, "most operators in the e-graph").range(100, 1'000'000);
  m.option("seconds", &Options::seconds, "seconds of rewriting, and as many of measuring")
      .above(0.0)
      .max(3600.0);
  m.option("cycle_filter", &Options::cycle_filter,
           "how rewrites that would close a cycle are found: vanilla looks before each, efficient once an "
           "iteration; none: the extraction sees to them");
  m.option("extractor", &Options::extractor,
           "ilp: the integer program, greedy_dag: sets of operators, greedy: trees; the best of it and those "
           "simpler");
  m.option("ilp_seconds", &Options::ilp_seconds, "seconds of the integer program").above(0.0).max(3600.0);
  m.option("min_gain", &Options::min_gain,
           "share of the time of a pass that another graph has to save, else it is not taken")
      .range(0.0, 0.9);
}

inline Search search_of(const SearchOptions& options) {
  return {.k_multi = options.k_multi,
          .max_iterations = options.max_iterations,
          .max_nodes = options.max_nodes,
          .seconds = options.seconds,
          .cycles = options.cycle_filter,
          .extractor = options.extractor,
          .ilp_seconds = options.ilp_seconds,
          .min_gain = options.min_gain};
}

}  // namespace tensat

template <>
struct trainyard::Words<tensat::Use> {
  static constexpr std::string_view words[] = {"training", "inference"};
};
