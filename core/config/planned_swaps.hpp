// [[swap]]: the swaps that a run file plans.
#pragma once

#include <vector>

#include "core/config/check.hpp"
#include "core/config/run_config.hpp"
#include "core/plugins/registry.hpp"

namespace trainyard::config {

struct PlannedSwaps {
  std::vector<PlannedSwap> swaps;
  Array printed;  ///< as `config show` prints them
};

/// Each of the `entries` is tried on the run as those before it leave it. `resolved`: all other tables.
PlannedSwaps plan_swaps(const Value& entries, const Table& resolved, const plugins::Registry& registry,
                        Checker& checker, Findings& findings);

}  // namespace trainyard::config
