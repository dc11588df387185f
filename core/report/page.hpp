// trainyard report: runs as one page.
#pragma once

#include <string>
#include <vector>

#include "core/report/run_data.hpp"

namespace trainyard::report {

struct Page {
  std::string html;
  std::size_t charts = 0;
};

/// One file that needs no other and no network, light or dark as its reader wants it. At least one run.
Page page_of(const std::vector<RunData>& runs, const std::string& time);

}  // namespace trainyard::report
