// [data] with its splits and its sampler: one dataset plugin, whose options stand in [data] for all splits
// and in [data.train], [data.val], [data.test] for one.
#pragma once

#include "core/runfile/tables.hpp"

namespace trainyard::config {

/// Fills in the splits and the sampler of `config`, and `data` of `resolved`.
void read_data(Tables& tables, const plugins::Registry& registry, Findings& findings, Table& resolved,
               RunConfig& config);

}  // namespace trainyard::config
