// The time that a training spends by plugin and by phase, for result.json and for status requests.
#pragma once

#include <vector>

#include "core/engine/train/run.hpp"
#include "core/rundir/run_directory.hpp"

namespace trainyard::train {

/// Work of every step is measured on a sample of the steps and scaled to the time of the whole run, including
/// before a resume. On a GPU it is the time until the work was handed over.
struct TimeUse {
  struct Plugin {
    double seconds = 0.0;         ///< in its calls and hooks
    report::NamedSeconds events;  ///< the part in its hooks, by event
  };
  std::vector<Plugin> plugins;  ///< in the order of Run::plugins()
  /// In steps: "data" (waiting), "forward", "loss", "backward", "optimizer", "hooks"; "other": the host,
  /// evaluations, checkpoints. They add up to the time of training. Empty before a step was timed.
  report::NamedSeconds phases;
};
TimeUse time_use(Run& run);

}  // namespace trainyard::train
