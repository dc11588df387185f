// Values of the evaluations that plugins go by.
#pragma once

#include <string>
#include <vector>

#include "core/plugins/registry.hpp"
#include "core/runfile/findings.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::config {

/// An option that names one (OptionRef::metric).
struct WatchedMetric {
  std::string key;      ///< "early_stopping.metric", "checkpoint.keep_best.metric"
  std::string watcher;  ///< the table that it is in: "early_stopping", "checkpoint.keep_best"
  std::string metric;   ///< "val/loss"
  Origin at;
};

std::vector<WatchedMetric> watched_metrics(const RunConfig& config, const plugins::Registry& registry);

/// Reports those that no evaluation produces while the training goes on. `config`: its slots are there, its
/// own tables are in `resolved` only.
void check_watched_metrics(const RunConfig& config, const Table& resolved, const plugins::Registry& registry,
                           Findings& findings);

}  // namespace trainyard::config
