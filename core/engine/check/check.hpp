// `trainyard plugins check`: every test of a plugin, each in a process of its own.
#pragma once

#include <string>
#include <vector>

#include "core/check/check_options.hpp"
#include "core/plugins/registry.hpp"

namespace trainyard::check {

/// Checks plugins, those without a name being all of a file, and prints. Returns `done` if no test failed or crashed, else `plugin`.
/// The process must not have used LibTorch yet. Throws Error if a check cannot be made at all.
int check_command(const std::vector<plugins::PluginFile>& plugins, const plugins::Registry& registry,
                  const CheckOptions& options);

}  // namespace trainyard::check
