#include "core/report/bands.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

namespace trainyard::report {

/// Deviations are scaled by the largest one, because squares of very large numbers are infinite.
Spread spread_of(std::int64_t step, const std::vector<double>& values) {
  double mean = 0.0, farthest = 0.0, squares = 0.0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  if (!std::isfinite(mean)) return {step, mean, mean, mean};
  // Equal values give exactly that value, which the rounded mean may miss.
  if (std::ranges::all_of(values, [&](double value) { return value == values.front(); }))
    return {step, values.front(), values.front(), values.front()};
  for (const double value : values) farthest = std::max(farthest, std::abs(value - mean));
  if (!std::isfinite(farthest)) return {step, mean, mean, mean};
  for (const double value : values) squares += std::pow((value - mean) / farthest, 2);
  const double deviation = farthest * std::sqrt(squares / static_cast<double>(values.size() - 1));
  return {step, mean, mean - deviation, mean + deviation};
}

Band band_of(const std::vector<RunData>& runs, const std::vector<std::size_t>& which,
             const std::string& metric) {
  std::map<std::int64_t, std::vector<double>> at;
  for (const std::size_t run : which) {
    const auto found = runs[run].curves.find(metric);
    if (found == runs[run].curves.end()) continue;
    for (const Point& point : found->second) at[point.step].push_back(point.value);
  }
  Band band;
  for (const auto& [step, values] : at) band.push_back(spread_of(step, values));
  return band;
}

std::vector<std::size_t> thinned(const Band& band, double from, double to, std::size_t columns) {
  const double width = std::max(to - from, 1.0) / static_cast<double>(columns);
  const auto column_of = [&](std::size_t i) {
    return static_cast<std::int64_t>((static_cast<double>(band[i].step) - from) / width);
  };
  std::vector<std::size_t> kept;
  for (std::size_t begin = 0, end = 0; begin < band.size(); begin = end) {
    std::set<std::size_t> of_column;
    std::optional<std::size_t> first, last, lowest, highest, broken;
    for (end = begin; end < band.size() && column_of(end) == column_of(begin); ++end) {
      if (!std::isfinite(band[end].mean)) {
        if (!broken) of_column.insert(*(broken = end));
        continue;
      }
      if (!first) first = end;
      if (!lowest || band[end].mean < band[*lowest].mean) lowest = end;
      if (!highest || band[end].mean > band[*highest].mean) highest = end;
      last = end;
    }
    if (first) of_column.insert({*first, *lowest, *highest, *last});
    kept.insert(kept.end(), of_column.begin(), of_column.end());
  }
  return kept;
}

}  // namespace trainyard::report
