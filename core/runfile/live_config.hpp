// Builds the configuration of a training as it begins, without planned swaps, or of one that is going, with
// the swaps made in it. Every rule of the run file is checked here, before any tensor is made and without
// running code of a plugin.
#pragma once

#include <optional>

#include "core/plugins/registry.hpp"
#include "core/runfile/findings.hpp"
#include "core/runfile/load.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::config {

struct Resolution {
  std::optional<RunConfig> config;  ///< present if and only if no finding is an error
  Findings findings;
};

/// Resolves a run file and ignores [[swap]].
Resolution live_config(Document document, const plugins::Registry& registry);

/// Removes the plugins that are no part of a training (KindRow::beside).
void keep_training(RunConfig& config);

}  // namespace trainyard::config
