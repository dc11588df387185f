// quarantine.json in a run's directory: plugins that brought the run down, by the digest of their code. A
// resumed run goes on without them; mend the plugin, which changes its digest, or edit the file. Torch-free.
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
  std::string event;      ///< that was fired last; empty: not known
  std::int64_t step = 0;  ///< of the run
  std::string reason;
  std::string time;  ///< ISO 8601, UTC
};

/// Empty where there is no such file. Throws DataError for one that cannot be read.
std::vector<Quarantined> read_quarantine(const std::string& directory);

/// Adds a plugin to the file. Throws DataError.
void quarantine(const std::string& directory, Quarantined plugin);

/// Takes hooks, rules, sinks and metrics with a quarantined digest out of a run, and returns which. Throws
/// PluginError where one fills a slot that the run needs, or makes the metric that it watches.
std::vector<Quarantined> leave_out(config::RunConfig& config, const plugins::Registry& registry,
                                   const std::vector<Quarantined>& quarantined);

}  // namespace trainyard::control
