// Checks what the plugins of a run state about it and about each other in their manifests.
#pragma once

#include <string>
#include <vector>

#include "core/plugins/registry.hpp"
#include "core/runfile/findings.hpp"

namespace trainyard::config {

struct PluginInUse {
  std::string slot;  ///< "optimizer", "hooks[0]"
  Origin at;         ///< place of the slot's table
  const plugins::PluginFile* plugin;
  Table options;  ///< defaults included
};

/// Properties of a run besides its plugins and the keys of its file.
struct RunOffer {
  bool steps = true;  ///< its length can be counted in steps
  int ranks = 1;      ///< number of ranks that train together
};

/// Returns whether the plugin, with these options and in this run, works only with several ranks.
bool needs_ranks(const plugins::PluginFile& plugin, const Table& options, const Table& run);

/// Reports needs that the run does not meet, hooks that its executor does not serve, and conflicts.
void check_together(const std::vector<PluginInUse>& plugins, const Table& resolved, const RunOffer& offer,
                    Findings& findings);

}  // namespace trainyard::config
