// Checks what a rule does when it fires (`action`), as far as that can be known before the run.
#pragma once

#include "core/plugins/registry.hpp"
#include "core/runfile/findings.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::config {

/// Checks that the swap of each rule with `action = "swap"` fits the run as it begins, `begins`, or as one of
/// its planned swaps leaves it.
void check_rule_actions(const RunConfig& config, const Table& begins, const plugins::Registry& registry,
                        Findings& findings);

}  // namespace trainyard::config
