// A metric over the runs of a group: its mean, how far they lie apart, and what a drawing needs of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/report/run_data.hpp"

namespace trainyard::report {

/// At one step: the mean over the runs that have a value there, and one standard deviation (of a sample) to each
/// side. Of a single run all three are its value. A value that is not finite makes all three so: what hides it
/// among the others would lie.
struct Spread {
  std::int64_t step = 0;
  double mean = 0.0, low = 0.0, high = 0.0;
};
using Band = std::vector<Spread>;

/// Of some values, at least one.
Spread spread_of(std::int64_t step, const std::vector<double>& values);

/// Of those of the runs (by their places) that have the metric; empty where none does.
Band band_of(const std::vector<RunData>& runs, const std::vector<std::size_t>& which,
             const std::string& metric);

/// Which of the points of a curve are drawn in so many columns between two steps: of each column the first, the
/// lowest, the highest and the last, so that the drawing is that of all of them and no spike is lost (Jugel,
/// Jerzak, Hackenbroich and Markl, "M4: A Visualization-Oriented Time Series Data Aggregation", VLDB 2014); of
/// those that are not finite, where the drawing has a gap, the first. Places, rising.
std::vector<std::size_t> thinned(const Band& band, double from, double to, std::size_t columns);

}  // namespace trainyard::report
