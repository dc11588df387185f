// Reads the host's own tables of a resolved file into the typed fields of a RunConfig.
#pragma once

#include "core/runfile/run_config.hpp"

namespace trainyard::config {

/// Expects everything to be present and valid.
void fill_in(const Table& resolved, RunConfig& config);

}  // namespace trainyard::config
