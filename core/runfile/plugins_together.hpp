// What the plugins of a run say of it and of each other in their manifests.
#pragma once

#include <string>
#include <vector>

#include "core/plugins/registry.hpp"
#include "core/runfile/findings.hpp"

namespace trainyard::config {

struct PluginInUse {
  std::string slot;  ///< "optimizer", "hooks[0]"
  Origin at;         ///< of the slot's table
  const plugins::PluginFile* plugin;
};

/// Reports needs that the run does not meet, and conflicts. `steps`: whether its length can be counted in
/// steps; `ranks`: that train together.
void check_together(const std::vector<PluginInUse>& plugins, const Table& resolved, bool steps, int ranks,
                    Findings& findings);

}  // namespace trainyard::config
