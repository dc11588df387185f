// Compares runs: which differ by their seed alone, in which keys they differ, how each ended.
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

/// Returns a label for each run that no other run has: its name, with its folder where names are equal.
std::vector<std::string> labels_of(const std::vector<RunData>& runs);

/// A key of the run file with its value in each run, as TOML; empty where a run has no such key. Names and
/// folders of runs always differ, and are left out.
struct DifferingKey {
  std::string key;
  std::vector<std::string> values;
};
std::vector<DifferingKey> differing_keys(const std::vector<RunData>& runs);

/// The last value of a metric in a run and, where low or high values are better, its best.
struct Outcome {
  Point last;
  std::optional<Point> best;  ///< among the values that are finite
};
struct MetricOutcomes {
  std::string metric;
  std::optional<bool> lower_is_better;         ///< nothing: neither is better ("lr")
  std::vector<std::optional<Outcome>> of_run;  ///< nothing where the run lacks the metric
};
/// Returns the outcomes of every metric, those of evaluation passes first.
std::vector<MetricOutcomes> outcomes_of(const std::vector<RunData>& runs);

/// Returns the names of all metrics in the order in which tables and pages list them.
std::vector<std::string> metrics_of(const std::vector<RunData>& runs);

}  // namespace trainyard::report
