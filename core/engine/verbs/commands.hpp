// Verbs of the command line that need the engine. Each returns the exit code.
#pragma once

#include <cstdint>
#include <string>

#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

/// How `trainyard train` was called.
struct TrainOptions {
  std::string resolved_toml;  ///< the text that the run directory keeps
  bool overwrite = false;     ///< replaces a run directory that exists
  bool quiet = false;
  bool color = false;  ///< standard output is a terminal
  /// The step at whose safe point SIGKILL ends the process, for checks of plugins; 0: none.
  std::int64_t kill_at = 0;
};

/// `trainyard train`: trains a run with its directory, sinks, signals and result. Throws Error only before
/// the run directory exists; later errors go into result.json and to standard error.
int train_command(const config::RunConfig& config, const plugins::Registry& registry,
                  const TrainOptions& options);

/// `trainyard plan`, the part that needs data and model: prints steps, batch arithmetic and memory.
int plan_command(const config::RunConfig& config, const plugins::Registry& registry);

/// `trainyard validate`, beyond the run file: builds the run. Throws if its parts do not fit each other.
int check_command(const config::RunConfig& config, const plugins::Registry& registry);

/// `trainyard eval`: loads `weights` (safetensors; names, shapes and dtypes must be the model's) and
/// evaluates every split but training.
int evaluate_command(const config::RunConfig& config, const plugins::Registry& registry,
                     const std::string& weights, bool json);

/// `trainyard NAME`: runs the one tool of the run file on weights (a safetensors file, a checkpoint, a run's
/// directory; "initial": those that the model begins with; empty: this run's directory), and prints its
/// report. Returns the report's exit code, or `resumable` after a signal.
int tool_command(const config::RunConfig& config, const plugins::Registry& registry,
                 const std::string& weights, bool json);

/// Exit code of rules_command() if no rule fires, but one could not look at all that it wants.
inline constexpr int rules_not_checked = 7;

/// `trainyard rules check`: shows each record of a trial to the rules, in order; prints what fires, and what
/// was not looked at and why. Returns `numeric` if anything fires. No action follows: actions belong to a
/// live run.
int rules_command(const config::RunConfig& config, const plugins::Registry& registry,
                  const std::string& trial, bool json);

}  // namespace trainyard::train
