// What a training spends its time on, by plugin and by phase: for result.json, and for who asks while it goes.
#pragma once

#include <vector>

#include "core/engine/train/run.hpp"
#include "core/rundir/run_directory.hpp"

namespace trainyard::train {

/// What happens in every step was measured on a sample of them, and is multiplied: it is of the whole run, before a
/// resume too. On a GPU it is the time until the work was handed over.
struct TimeUse {
  struct Plugin {
    double seconds = 0.0;         ///< in its calls and hooks
    report::NamedSeconds events;  ///< of them, in its hooks, by event
  };
  std::vector<Plugin> plugins;  ///< as Run::plugins()
  /// Of steps "data" (waited for), "forward", "loss", "backward", "optimizer", "hooks"; and "other": the host,
  /// evaluations, checkpoints. Together they are the time of the training. Empty before a step was timed.
  report::NamedSeconds phases;
};
TimeUse time_use(Run& run);

}  // namespace trainyard::train
