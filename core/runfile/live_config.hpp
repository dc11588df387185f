// What a run file says of the training as it begins, without the swaps that it plans; and of one that is
// going, with the swaps made in it. Every rule of the run file is checked here, before any tensor is made and
// without running code of a plugin.
#pragma once

#include <optional>

#include "core/plugins/registry.hpp"
#include "core/runfile/findings.hpp"
#include "core/runfile/load.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::config {

struct Resolution {
  std::optional<RunConfig> config;  ///< exactly when there is no error among the findings
  Findings findings;
};

/// [[swap]] is left alone.
Resolution live_config(Document document, const plugins::Registry& registry);

/// Takes out the plugins that are no part of a training (KindRow::beside).
void keep_training(RunConfig& config);

}  // namespace trainyard::config
