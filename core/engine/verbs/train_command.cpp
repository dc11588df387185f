#include "core/engine/verbs/train_command.hpp"

#include <c10/util/Exception.h>

#include <cstdio>
#include <optional>

#include "core/engine/events/fault_report.hpp"
#include "core/engine/events/watchdog.hpp"
#include "core/engine/save/summary.hpp"
#include "core/engine/verbs/beginning.hpp"
#include "core/engine/verbs/messages.hpp"
#include "core/engine/verbs/signal_scope.hpp"
#include "core/engine/verbs/training.hpp"
#include "core/rundir/run_directory.hpp"

namespace trainyard::train {

int train_command(const config::RunConfig& config, const plugins::Registry& registry,
                  const TrainOptions& options) {
  const SignalScope signals;
  std::optional<Beginning> beginning = begin(config, registry, options.resolved_toml, options.overwrite);
  if (!beginning) {
    std::printf(
        "%s: complete already, in %s; raise trainer.max_duration to train on, or begin anew with "
        "--overwrite\n",
        config.run.name.c_str(), config.run.output_dir.c_str());
    return static_cast<int>(ExitCode::done);
  }
  report::RunDirectory& directory = beginning->directory;
  Messages messages(directory.file("run.log"));
  report::FaultReport faults(directory.path(), options.resolved_toml);
  std::optional<events::Watchdog> watchdog;
  if (config.guard.deadline.count > 0)
    watchdog.emplace(events::Watchdog::Seconds(config.guard.deadline.count), [&](const std::string& overdue) {
      if (config.guard.on_deadline == config::GuardKeys::Overdue::abort) faults.end_hung();
      messages.send(LogLevel::warning, overdue);
    });
  report::RunResult result;
  const auto fail = [&](ExitCode code, const std::string& what) {
    result.status = report::Status::failed;
    result.exit_code = code;
    result.error = what;
    messages.send(LogLevel::error, "trainyard: " + what);
  };
  try {
    for (bool again = true; again;) try {
        Training(*beginning, registry, options, messages, faults).run(result);
        again = false;
      } catch (const events::HookError& error) {
        if (!begin_again(*beginning, error, config, registry)) throw;
      }
  } catch (const Error& error) {
    faults.write(error);
    fail(error.code(), error.what());
  } catch (const c10::Error& error) {
    fail(ExitCode::internal, error.what_without_backtrace());
  } catch (const std::exception& error) {
    fail(ExitCode::internal, std::string("internal error: ") + error.what());
  }
  directory.finish(result);
  if (!options.quiet && result.status != report::Status::failed)
    std::fputs(report::summary(config, result, directory.path()).c_str(), stdout);
  return static_cast<int>(result.exit_code);
}

}  // namespace trainyard::train
