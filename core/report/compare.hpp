// Several runs beside each other: which differ by their seed alone, in which keys they differ, how each ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/report/run_data.hpp"

namespace trainyard::report {

/// Runs that differ in nothing but seed, name and folder.
struct Group {
  std::string label;
  std::vector<std::size_t> runs;  ///< by their places
};
std::vector<Group> groups_of(const std::vector<RunData>& runs);

/// Of each run, unlike any other's: its name, with its folder where two have the same.
std::vector<std::string> labels_of(const std::vector<RunData>& runs);

/// A key of the run file with its value of each run, as TOML; empty where a run has no such key. Names and folders of
/// runs differ always, and are left out.
struct DifferingKey {
  std::string key;
  std::vector<std::string> values;
};
std::vector<DifferingKey> differing_keys(const std::vector<RunData>& runs);

/// How a metric of a run ended, and where it was best: of those that somebody wants low or high.
struct Outcome {
  Point last;
  std::optional<Point> best;  ///< among the values that are finite
};
struct MetricOutcomes {
  std::string metric;
  std::optional<bool> lower_is_better;         ///< nothing: of neither ("lr")
  std::vector<std::optional<Outcome>> of_run;  ///< nothing where it has no such metric
};
/// Of every metric: those of evaluations first.
std::vector<MetricOutcomes> outcomes_of(const std::vector<RunData>& runs);

/// The names of all metrics in the order in which a reader wants them.
std::vector<std::string> metrics_of(const std::vector<RunData>& runs);

}  // namespace trainyard::report
