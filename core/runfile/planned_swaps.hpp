// [[swap]]: the swaps that a run file plans.
#pragma once

#include <vector>

#include "core/plugins/registry.hpp"
#include "core/runfile/findings.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::config {

struct PlannedSwaps {
  std::vector<PlannedSwap> swaps;  ///< in the order of time, as far as the file tells
  Array printed;                   ///< as `config show` prints them, in the order of the file
};

/// Each of the `entries` is tried on the run as those before it in time leave it, as a run file and as a
/// change of a running training. `run`: without any of them.
PlannedSwaps plan_swaps(const Value& entries, const RunConfig& run, const plugins::Registry& registry,
                        Findings& findings);

/// An entry as it is printed, read back.
PlannedSwap planned_swap(const Table& printed);

}  // namespace trainyard::config
