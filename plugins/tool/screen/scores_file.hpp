// Scores as a CSV file.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace screen {

struct Scored {
  std::vector<std::string> detectors;
  std::vector<std::vector<double>> standard;  ///< [detectors][rows]
  std::vector<double> combined;
  double threshold = 0.0;

  bool is_outlier(std::size_t row) const { return combined[row] > threshold; }
  /// Returns how often a training is to draw the row, beside one that is no outlier: e times as rarely for each unit of
  /// its score above the threshold.
  double weight(std::size_t row) const { return std::exp(std::min(0.0, threshold - combined[row])); }
};

/// Writes a row a line: its number from 1, the score, 1 for an outlier, its weight, and the standard score of each
/// detector. The file appears at its place when it is whole. Throws DataError.
void write_scores(const std::string& path, const Scored& scored);

}  // namespace screen
