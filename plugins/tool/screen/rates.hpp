// How well scores tell labelled outliers from the others.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

namespace screen {

/// Returns the share of pairs of an outlier (label 1) and another row in which the outlier has the larger score; ties count
/// half (area under the ROC curve). NaN where all labels are alike.
inline double area_under_curve(const std::vector<double>& scores, const std::vector<double>& labels) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
  double ranks = 0.0, outliers = 0.0;
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first;
    while (last < order.size() && scores[order[last]] == scores[order[first]]) ++last;
    for (std::size_t i = first; i < last; ++i) {
      ranks += labels[order[i]] * (static_cast<double>(first + last) + 1.0) / 2.0;
      outliers += labels[order[i]];
    }
    first = last;
  }
  const double others = static_cast<double>(scores.size()) - outliers;
  return (ranks - outliers * (outliers + 1.0) / 2.0) / (outliers * others);
}

}  // namespace screen
