// What keys demand of each other. What each of them may hold was checked before (check.hpp).
#pragma once

#include <trainyard/value.hpp>
#include "core/runfile/findings.hpp"

namespace trainyard::config {

/// Fills in batch_size, micro_batch_size and accumulation of [data.train] from those that are given, or says
/// why they contradict. `at`: of the table.
void solve_batch(Table& train, const Origin& at, std::int64_t ranks, std::int64_t written_for,
                 Findings& findings);

/// All other such rules, on the resolved tables; a key that is absent or was found wrong does not count.
/// `local_ranks`: that train on this machine.
void check_between_keys(const Table& resolved, int local_ranks, Findings& findings);

}  // namespace trainyard::config
