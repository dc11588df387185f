// quarantine.json in a run's directory lists plugins that brought the run down, by kind, name and the digest
// of their file. A resume leaves them out: mend the plugin, which changes its digest, or edit the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::control {

struct Quarantined {
  std::string plugin, slot, kind;
  std::string digest;     ///< SHA-256 of its code
  std::string event;      ///< event fired last; empty: not known
  std::int64_t step = 0;  ///< step of the run
  std::string reason;
  std::string time;  ///< ISO 8601, UTC
};

/// Reads the file; empty where there is none. Throws DataError if it cannot be read.
std::vector<Quarantined> read_quarantine(const std::string& directory);

/// Adds a plugin to the file. Throws DataError.
void quarantine(const std::string& directory, Quarantined plugin);

/// Removes hooks, rules, sinks and metrics that are quarantined from a run's configuration, and returns
/// which. Throws PluginError where one fills a slot that the run needs, or makes the metric that it watches.
std::vector<Quarantined> leave_out(config::RunConfig& config, const plugins::Registry& registry,
                                   const std::vector<Quarantined>& quarantined);

}  // namespace trainyard::control
