// Finds the metrics of evaluation passes by which plugins decide.
#pragma once

#include <string>
#include <vector>

#include "core/plugins/registry.hpp"
#include "core/runfile/findings.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::config {

/// An option that names a metric (OptionRef::metric).
struct WatchedMetric {
  std::string key;      ///< "early_stopping.metric", "checkpoint.keep_best.metric"
  std::string watcher;  ///< table that contains the key: "early_stopping", "checkpoint.keep_best"
  std::string metric;   ///< "val/loss"
  Origin at;
};

std::vector<WatchedMetric> watched_metrics(const RunConfig& config, const plugins::Registry& registry);

/// Reports metrics that no evaluation pass produces during the training. The slots of `config` are filled in;
/// its own tables are in `resolved` only.
void check_watched_metrics(const RunConfig& config, const Table& resolved, const plugins::Registry& registry,
                           Findings& findings);

}  // namespace trainyard::config
