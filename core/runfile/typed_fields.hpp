// The host's own tables of a resolved file as the typed fields of a RunConfig.
#pragma once

#include "core/runfile/run_config.hpp"

namespace trainyard::config {

/// Everything is known to be there and right.
void fill_in(const Table& resolved, RunConfig& config);

}  // namespace trainyard::config
