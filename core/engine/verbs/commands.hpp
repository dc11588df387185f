// Verbs of the command line that need the engine. Each gives the exit code.
#pragma once

#include <cstdint>
#include <string>

#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

/// How `trainyard train` was called.
struct TrainOptions {
  std::string resolved_toml;  ///< what the run directory keeps
  bool overwrite = false;     ///< of a run directory that exists
  bool quiet = false;
  bool color = false;  ///< standard output is a terminal
  /// The process ends by SIGKILL at the safe point of this step, as checks of plugins want it; 0: it does not.
  std::int64_t kill_at = 0;
};

/// `trainyard train`: a run with its directory, sinks, signals and result. Throws Error only before the run directory
/// exists; afterwards errors go into result.json and onto standard error.
int train_command(const config::RunConfig& config, const plugins::Registry& registry,
                  const TrainOptions& options);

/// The part of `trainyard plan` that needs data and model: steps, batch arithmetic, memory.
int plan_command(const config::RunConfig& config, const plugins::Registry& registry);

/// `trainyard validate`, past what the run file says: builds the run. Throws where its parts do not fit each other.
void check_command(const config::RunConfig& config, const plugins::Registry& registry);

/// `trainyard eval`: loads `weights` (safetensors; names, shapes and dtypes must be the model's) and evaluates every
/// split but training.
int evaluate_command(const config::RunConfig& config, const plugins::Registry& registry,
                     const std::string& weights, bool json);

/// `trainyard NAME`: runs the one tool of the run file over weights (a safetensors file, a checkpoint, a run's
/// directory; "initial": those that the model begins with; empty: the directory of this run), and prints its report.
/// Returns the report's exit code, or `resumable` after a signal.
int tool_command(const config::RunConfig& config, const plugins::Registry& registry,
                 const std::string& weights, bool json);

/// Exit code of rules_command() where nothing fires, but a rule could not look at all that it wants.
inline constexpr int rules_not_checked = 7;

/// `trainyard rules check`: shows every record of a trial to the rules, in order, and prints what fires and what was not
/// looked at, for which reason. Returns `numeric` where anything fires. Nothing is done about it: actions belong to a
/// run that is going.
int rules_command(const config::RunConfig& config, const plugins::Registry& registry,
                  const std::string& trial, bool json);

}  // namespace trainyard::train
