// Checks keys against each other. Each key's own value was checked before (check.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include <trainyard/value.hpp>
#include "core/runfile/findings.hpp"

namespace trainyard::config {

/// Fills in batch_size, micro_batch_size and accumulation of [data.train] from those that are given, or
/// reports why they contradict each other. `at` is the place of the table; `shares` are the ranks' in a
/// batch, of which there are as many as ranks unless all are the same.
void solve_batch(Table& train, const Origin& at, std::int64_t ranks, std::int64_t written_for,
                 const std::vector<std::int64_t>& shares, Findings& findings);

/// Checks all other such rules on the resolved tables; keys that are absent or were found wrong are skipped.
/// `local_ranks` is the number of ranks on this machine.
void check_between_keys(const Table& resolved, int local_ranks, Findings& findings);

}  // namespace trainyard::config
