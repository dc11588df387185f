// Scores as a CSV file.
#pragma once

#include <string>
#include <vector>

namespace screen {

struct Scored {
  std::vector<std::string> detectors;
  std::vector<std::vector<double>> standard;  ///< [detectors][rows]
  std::vector<double> combined;
  double threshold = 0.0;

  bool is_outlier(std::size_t row) const { return combined[row] > threshold; }
};

/// Writes a row a line: its number from 1, the score, 1 for an outlier, and the standard score of each detector. The
/// file appears at its place when it is whole. Throws DataError.
void write_scores(const std::string& path, const Scored& scored);

}  // namespace screen
