// Checks [[swap]], the swaps that a run file plans.
#pragma once

#include <vector>

#include "core/plugins/registry.hpp"
#include "core/runfile/findings.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::config {

struct PlannedSwaps {
  std::vector<PlannedSwap> swaps;  ///< sorted by time, as far as the file tells
  Array printed;                   ///< entries as `config show` prints them, in file order
};

/// Tries each of the `entries` on the run as earlier ones leave it, as a run file and as a change of a
/// running training. `run` is the run without any of them.
PlannedSwaps plan_swaps(const Value& entries, const RunConfig& run, const plugins::Registry& registry,
                        Findings& findings);

/// Reads back an entry that was printed.
PlannedSwap planned_swap(const Table& printed);

}  // namespace trainyard::config
