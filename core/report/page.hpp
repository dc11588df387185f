// Writes the page of `trainyard report`, which shows one or more runs.
#pragma once

#include <string>
#include <vector>

#include "core/report/run_data.hpp"

namespace trainyard::report {

struct Page {
  std::string html;
  std::size_t charts = 0;
};

/// Returns a page of at least one run: one file that needs no other and no network, light or dark.
Page page_of(const std::vector<RunData>& runs, const std::string& time);

}  // namespace trainyard::report
