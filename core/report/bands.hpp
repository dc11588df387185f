// The mean and spread of a metric over the runs of a group, and the points of the curve that are drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/report/run_data.hpp"

namespace trainyard::report {

/// The mean over the runs that have a value at one step, and one (sample) standard deviation to each side.
/// With a single run all three are its value. A value that is not finite makes all three so, because the mean
/// of the others would hide it.
struct Spread {
  std::int64_t step = 0;
  double mean = 0.0, low = 0.0, high = 0.0;
};
using Band = std::vector<Spread>;

/// Returns the spread of `values`, of which there is at least one.
Spread spread_of(std::int64_t step, const std::vector<double>& values);

/// Returns the band of `metric` over the runs at the places `which` that have it; empty where none does.
Band band_of(const std::vector<RunData>& runs, const std::vector<std::size_t>& which,
             const std::string& metric);

/// Selects the points of a curve to draw in `columns` columns from step `from` to `to`: of each column the
/// first, lowest, highest and last, so that no spike is lost (Jugel, Jerzak, Hackenbroich and Markl, "M4: A
/// Visualization-Oriented Time Series Data Aggregation", VLDB 2014), and the first that is not finite, where
/// the drawing has a gap. Returns rising places.
std::vector<std::size_t> thinned(const Band& band, double from, double to, std::size_t columns);

}  // namespace trainyard::report
