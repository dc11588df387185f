// Means over seeds with their 95 % intervals, and how tables show them.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <trainyard/study.hpp>

#include "lib/printed.hpp"

namespace studies {

inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// 97.5 % quantiles of Student's t with 1, 2, ... degrees of freedom; with more the normal distribution's.
inline double t_quantile(std::size_t freedom) {
  constexpr double t[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                          2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                          2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  return freedom <= std::size(t) ? t[freedom - 1] : 1.96;
}

struct Interval {
  double mean = nan, half = nan;  ///< half: unknown of fewer than two values
};

inline Interval interval(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  if (values.size() < 2) return {mean, nan};
  double squares = 0.0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / (count - 1)) / std::sqrt(count) * t_quantile(values.size() - 1)};
}

inline std::string printed(const char* format, double value) {
  return std::isnan(value) ? "nan" : trainyard::lib::printed(format, value);
}

/// As far as it has one, with its interval: "0.9312 ± 0.0021".
inline trainyard::ResultCell cell(const Interval& of) {
  if (std::isnan(of.mean)) return {"-", {}, {}};
  if (std::isnan(of.half)) return {printed("%.4f", of.mean), of.mean, {}};
  return {printed("%.4f", of.mean) + " ± " + printed("%.4f", of.half), of.mean, of.half};
}

/// More is better; what diverged is worst.
inline double worth(trainyard::StudyGoal goal, double value) {
  if (std::isnan(value)) return -std::numeric_limits<double>::infinity();
  return goal == trainyard::StudyGoal::max ? value : -value;
}

/// What a trial gave; NaN of one that diverged.
inline double value_of(const trainyard::TrialOutcome& outcome, const std::string& metric) {
  const auto found = outcome.metrics.find(metric);
  const bool there = outcome.end == trainyard::TrialOutcome::End::done && found != outcome.metrics.end();
  return there ? found->second : nan;
}

}  // namespace studies
