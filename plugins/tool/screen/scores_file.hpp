// Scores as a CSV file.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace screen {

struct Scored {
  std::vector<std::string> detectors;
  std::vector<std::vector<double>> standard;  ///< [detectors][rows]
  std::vector<double> combined;
  double threshold = 0.0;
  std::vector<std::int64_t> rows;  ///< number of each in the file, from 0, ascending; empty: 0, 1, 2, ...
  std::int64_t all = 0;            ///< rows of the file where `rows` is not empty

  bool is_outlier(std::size_t row) const { return combined[row] > threshold; }
  /// Returns how often a training is to draw the row, beside one that is no outlier: e times as rarely for each unit of
  /// its score above the threshold.
  double weight(std::size_t row) const { return std::exp(std::min(0.0, threshold - combined[row])); }
};

/// Writes a row a line: its number from 1, the score, 1 for an outlier, its weight, and the standard score of each
/// detector. A row of the file that was not judged has the weight 1 and no scores. The file appears at its place when it
/// is whole. Throws DataError.
void write_scores(const std::string& path, const Scored& scored);

}  // namespace screen
