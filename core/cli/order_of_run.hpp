// The hook order of a run file, from manifests alone.
#pragma once

#include <string>

#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::cli {

/// Per event: the plugins in order, each with its phase, what it writes, and why it stands there; then a digest of it.
std::string order_of_run(const config::RunConfig& config, const plugins::Registry& registry);

}  // namespace trainyard::cli
