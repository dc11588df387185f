// Reads [data] with its splits and its sampler: one dataset plugin, whose options stand in [data] for all
// splits and in [data.train], [data.val], [data.test] for one.
#pragma once

#include "core/runfile/tables.hpp"

namespace trainyard::config {

/// Adds the datasets of the splits and the sampler to `slots`, and `data` to `resolved`.
void read_data(Tables& tables, const plugins::Registry& registry, Findings& findings, Table& resolved,
               std::vector<SlotConfig>& slots);

}  // namespace trainyard::config
