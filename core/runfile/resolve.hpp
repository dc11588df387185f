// Resolves a loaded run file to a RunConfig, and tries its planned swaps and those of its rules on it.
#pragma once

#include "core/runfile/live_config.hpp"

namespace trainyard::config {

Resolution resolve(Document document, const plugins::Registry& registry);

}  // namespace trainyard::config
