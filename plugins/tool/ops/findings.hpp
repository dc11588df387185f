// Decides the themes of the study (H1 to H7) from a database: a statistic, a bound, a verdict, and the query that derives
// the statistic again. The study's own seven statements could not be read; the themes are those of its abstract.
#pragma once

#include <string>
#include <vector>

#include "database.hpp"

namespace ops {

struct Finding {
  std::string name;       ///< "H1"
  std::string statement;  ///< what would hold
  std::string statistic;  ///< what is looked at, in words
  double bound = 0.0;     ///< it holds from here on
  double value = 0.0;
  bool decided = false;  ///< the sweeps that it needs are there
  bool holds = false;
  std::string numbers;  ///< those behind it
  std::string query;    ///< SQL over the file as a table `rows`, whose answer is the value
};

std::vector<Finding> findings_of(const Database& database);

/// Returns them as a JSON document.
std::string json_of(const std::vector<Finding>& findings);

/// Kendall's rank correlation (tau a) of two lists of the same length.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace ops
