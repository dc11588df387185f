// Prints the hook order of a run file, from manifests alone.
#pragma once

#include <string>

#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::cli {

/// Lists, per event, the plugins in order, each with phase, writes and reason for its place; then a digest.
std::string order_of_run(const config::RunConfig& config, const plugins::Registry& registry);

}  // namespace trainyard::cli
