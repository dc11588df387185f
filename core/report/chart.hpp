// A metric as a drawing: curves of groups of runs with their bands, and marks of what happened.
#pragma once

#include <string>
#include <vector>

#include "core/report/bands.hpp"
#include "core/report/compare.hpp"

namespace trainyard::report {

/// Something of the journal, or several of it that are alike.
struct Mark {
  std::int64_t step = 0;  ///< of the first
  std::size_t group = 0, run = 0, number = 0;
  std::string what, text;  ///< in a word or two, and all of it
};

struct ChartInput {
  std::string metric;
  std::vector<std::string> labels;  ///< of the groups
  std::vector<Band> bands;          ///< one for each, empty where it has no such metric
  std::vector<Mark> marks;
  std::size_t columns = 600;  ///< that its curves are thinned to
};

/// A figure of HTML: the curves as SVG, all text beside it so that it stays readable at any width, and the values
/// for the pointer as JSON. The SVG is stretched to the width that there is.
std::string chart(const ChartInput& input);

}  // namespace trainyard::report
