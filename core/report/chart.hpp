// Draws a metric: curves of groups of runs with their bands, and marks of journal entries.
#pragma once

#include <string>
#include <vector>

#include "core/report/bands.hpp"
#include "core/report/compare.hpp"

namespace trainyard::report {

/// A mark for one journal entry, or for several consecutive ones that are alike.
struct Mark {
  std::int64_t step = 0;  ///< step of the first entry
  std::size_t group = 0, run = 0, number = 0;
  std::string what, text;  ///< a label of a word or two, and the full text
};

struct ChartInput {
  std::string metric;
  std::vector<std::string> labels;  ///< of the groups
  std::vector<Band> bands;          ///< one per group; empty where it lacks the metric
  std::vector<Mark> marks;
  std::size_t columns = 600;  ///< columns to which curves are thinned
};

/// Returns an HTML figure: the curves as SVG, text beside it so that it stays readable at any width, and the
/// values for the pointer as JSON. The SVG is stretched to the width that there is.
std::string chart(const ChartInput& input);

}  // namespace trainyard::report
