// `trainyard schedule plot`: shows the effect of a run's schedule before it is trained.
#pragma once

#include <string>

#include "core/cli/plugins_verbs.hpp"
#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::cli {

/// Draws learning rate and, where it is cycled, momentum over the steps: as text for the terminal, or all of
/// them as JSON; with `svg` also into that file. Returns the exit code. Throws DataError where the file
/// cannot be written.
int schedule_plot(const config::RunConfig& config, const plugins::Registry& registry, Format format,
                  const std::string& svg);

}  // namespace trainyard::cli
