// Writes the tables of a report page.
#pragma once

#include <string>
#include <vector>

#include "core/report/chart.hpp"
#include "core/report/compare.hpp"

namespace trainyard::report {

/// The runs of a page with their labels, groups and marks.
struct Shown {
  const std::vector<RunData>& runs;
  std::vector<std::string> labels;
  std::vector<Group> groups;
  std::vector<std::size_t> group_of;  ///< of each run
  std::vector<Mark> marks;            ///< ordered by run, then by step
};
Shown shown(const std::vector<RunData>& runs);

std::string runs_table(const Shown& shown);
std::string outcomes_table(const Shown& shown);
std::string time_table(const Shown& shown);   ///< empty where no run has a result
std::string left_tables(const Shown& shown);  ///< what plugins left in the folders of the runs
std::string keys_table(const Shown& shown);
std::string journal_table(const Shown& shown);

}  // namespace trainyard::report
