#include "core/engine/verbs/commands.hpp"

#include <c10/util/Exception.h>
#include <torch/version.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>

#include "core/engine/distributed/world.hpp"
#include "core/engine/events/fault_report.hpp"
#include "core/engine/events/prints.hpp"
#include "core/engine/events/watchdog.hpp"
#include "core/engine/save/summary.hpp"
#include "core/engine/verbs/beginning.hpp"
#include "core/engine/verbs/messages.hpp"
#include "core/engine/verbs/signal_scope.hpp"
#include "core/engine/verbs/training.hpp"
#include "core/rundir/codecs.hpp"
#include "core/rundir/folder.hpp"
#include "core/rundir/run_directory.hpp"

namespace trainyard::train {

namespace {

/// Returns what must be the same on all ranks, one "name: value" per line.
std::string facts(const config::RunConfig& config, const plugins::Registry& registry,
                  const std::string& file) {
  std::string text = "LibTorch: " TORCH_VERSION "\nhost: " TRAINYARD_SDK_VERSION "\n";
  for (const config::SlotConfig& slot : config.slots)
    for (const plugins::PluginFile* plugin : registry.find(slot.kind, slot.type))
      text += "plugin of " + slot.slot + ": " + slot.type + " " + plugin->digest + "\n";
  return text + file;
}

/// Throws if the ranks were not started with the same facts.
void compare(distributed::World& world, const std::string& own) {
  const std::vector<std::string> all = world.gather(own);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all.front()) continue;
    std::istringstream first(all.front()), other(all[rank]);
    for (std::string here, there; std::getline(first, here) && std::getline(other, there);)
      if (here != there)
        throw ConfigError("rank " + std::to_string(rank) + " differs from rank 0: it has " + there +
                          ", and rank 0 has " + here + "; start all ranks alike");
    throw ConfigError("rank " + std::to_string(rank) + " has a longer or shorter run file than rank 0");
  }
}

/// Begins the run: the first rank takes its directory, and tells the others.
std::optional<Beginning> begin_all(distributed::World* world, const config::RunConfig& config,
                                   const plugins::Registry& registry, const TrainOptions& options) {
  if (world == nullptr) return begin(config, registry, options.resolved_toml, options.overwrite);
  if (world->newcomer()) return begin_in_place(*world, config, registry);
  compare(*world, facts(config, registry, options.resolved_toml));
  if (world->rank() != 0)
    return begin_beside(world->from_first({}), world->rank(), config, registry, options.resolved_toml);
  std::optional<Beginning> beginning = begin(config, registry, options.resolved_toml, options.overwrite);
  world->from_first(told(beginning));
  return beginning;
}

/// Reports an error before the run has a directory. Another rank's failure is reported by that rank.
int fail_early(distributed::World* world, const Error& error) {
  if (world != nullptr) world->fail(error.what());
  if (world == nullptr || world->rank() == 0 || error.code() != ExitCode::distributed)
    std::fprintf(stderr, "trainyard: %s\n", error.what());
  return static_cast<int>(error.code());
}

/// Returns the reactions to a call that does not return.
events::Watchdog::Answers answers(const config::GuardKeys& guard, Messages& messages,
                                  report::FaultReport& faults) {
  using Overdue = config::GuardKeys::Overdue;
  using Seconds = events::Watchdog::Seconds;
  static constexpr double late = 30.0;  // in deadlines
  const std::string then =
      guard.on_deadline == Overdue::abort_late
          ? "; the run ends when 30 times as long has passed, or a signal asks it to (guard.on_deadline)"
          : "";
  const Seconds deadline(guard.deadline.count);
  return {.overdue = [&messages,
                      then](const std::string& what) { messages.send(LogLevel::warning, what + then); },
          .patience =
              [how = guard.on_deadline, deadline] {
                if (how == Overdue::warn) return Seconds::max();
                return how == Overdue::abort || SignalScope::caught() > 0 ? deadline : late * deadline;
              },
          .hung = [&faults] { faults.end_hung(); }};
}

int train_ranks(distributed::World* world, const config::RunConfig& config, const plugins::Registry& registry,
                const TrainOptions& options) {
  const SignalScope signals;
  if (world != nullptr) world->heed(SignalScope::caught());
  const bool first = world == nullptr || world->rank() == 0;
  std::optional<Beginning> beginning = begin_all(world, config, registry, options);
  if (!beginning) {
    if (first)
      std::printf("%s: complete already, in %s; %sbegin anew with --overwrite\n", config.run.name.c_str(),
                  config.run.output_dir.c_str(),
                  checkpoint::list(config.run.output_dir + "/checkpoints").empty()
                      ? ""
                      : "raise trainer.max_duration to train on, or ");
    return static_cast<int>(ExitCode::done);
  }
  report::RunDirectory& directory = beginning->directory;
  Messages messages(directory.file("run.log"), first ? std::nullopt : std::optional(world->rank()));
  if (world != nullptr)
    world->on_silence([&](const std::string& what) { messages.send(LogLevel::warning, what); });
  report::FaultReport faults(directory.path(), options.resolved_toml);
  const events::Prints prints([&](std::string_view plugin, std::string_view line) {
    messages.send(LogLevel::info, std::string(plugin) + ": " + std::string(line));
  });
  std::optional<events::Watchdog> watchdog;
  if (config.guard.deadline.count > 0)
    watchdog.emplace(events::Watchdog::Seconds(config.guard.deadline.count),
                     answers(config.guard, messages, faults));
  report::RunResult result;
  const auto fail = [&](ExitCode code, const std::string& what) {
    result.status = report::Status::failed;
    result.exit_code = code;
    result.error = what;
    if (world != nullptr) world->fail(what);
    const bool of_another = code == ExitCode::distributed && !first;
    messages.send(of_another ? LogLevel::warning : LogLevel::error, "trainyard: " + what);
  };
  try {
    for (bool again = true; again;) try {
        Training(*beginning, registry, options, messages, faults, world).run(result);
        again = false;
      } catch (const events::BlamedError& error) {
        if (world != nullptr || !begin_again(*beginning, error, config, registry)) throw;
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
  if (first && !options.quiet && result.status != report::Status::failed)
    std::fputs(report::summary(config, result, directory.path()).c_str(), stdout);
  return static_cast<int>(result.exit_code);
}

}  // namespace

int train_command(const config::RunConfig& config, const plugins::Registry& registry,
                  const TrainOptions& options) {
  checkpoint::find_codecs_in(registry);
  std::unique_ptr<distributed::World> world;
  try {
    world = distributed::join(
        std::chrono::milliseconds(static_cast<std::int64_t>(config.distributed.timeout.count * 1000.0)));
    return train_ranks(world.get(), config, registry, options);
  } catch (const Error& error) {
    return fail_early(world.get(), error);
  }
}

}  // namespace trainyard::train
