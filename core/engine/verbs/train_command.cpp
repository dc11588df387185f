#include "core/engine/verbs/train_command.hpp"

#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>

#include <trainyard/formats/safetensors.hpp>

#include "core/engine/events/fault_report.hpp"
#include "core/engine/events/watchdog.hpp"
#include "core/engine/log/run_log.hpp"
#include "core/engine/save/load.hpp"
#include "core/engine/save/sink_thread.hpp"
#include "core/engine/save/summary.hpp"
#include "core/engine/swap/commander.hpp"
#include "core/engine/train/checkpoints.hpp"
#include "core/engine/train/guard.hpp"
#include "core/engine/train/run.hpp"
#include "core/engine/train/weights.hpp"
#include "core/engine/verbs/beginning.hpp"
#include "core/rundir/quarantine.hpp"
#include "core/rundir/run_directory.hpp"

namespace trainyard::train {
namespace {

std::atomic<int> caught_signal{0};

/// For its lifetime these signals end the run at a step boundary, with a checkpoint; a second one ends the
/// process at once. Handled on the thread's SignalStack: kernels of oneDNN (3.10, LibTorch 2.11's LSTM) lay
/// their stack pointer into a block of the heap, whose neighbours a handler there would overwrite.
class SignalScope {
 public:
  SignalScope() {
    caught_signal = 0;
    struct sigaction action {};
    action.sa_flags = SA_ONSTACK;
    action.sa_handler = [](int number) {
      if (caught_signal.exchange(number) == 0) return;
      signal(number, SIG_DFL);
      raise(number);  // delivered when the handler returns
    };
    for (std::size_t i = 0; i < std::size(numbers); ++i) sigaction(numbers[i], &action, &old_[i]);
  }
  ~SignalScope() {
    for (std::size_t i = 0; i < std::size(numbers); ++i) sigaction(numbers[i], &old_[i], nullptr);
  }
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

 private:
  static constexpr int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
  struct sigaction old_[std::size(numbers)] = {};
};

/// Where messages of the host and of plugins go: run.log always, the sinks while they are open.
class Messages {
 public:
  explicit Messages(const std::string& file) : log_(file) {}

  void send(LogLevel level, const std::string& message) {
    log_.write(level, message);
    if (level == LogLevel::debug) return;
    if (report::SinkThread* sinks = sinks_.load()) {
      Record record;
      record.what = Record::What::message;
      record.text = message;
      sinks->push(std::move(record));
    } else {
      std::fprintf(stderr, "%s\n", message.c_str());
    }
  }
  void set_sinks(report::SinkThread* sinks) { sinks_ = sinks; }

 private:
  report::RunLog log_;
  std::atomic<report::SinkThread*> sinks_{nullptr};
};

report::SinkThread::Entry sink_entry(ActivePlugin& plugin, const Run& run) {
  Sink& sink = plugin.as<Sink>();
  const Duration& interval =
      sink.common.interval.count > 0 ? sink.common.interval : run.config().logging.interval;
  return {plugin.slot().id, &sink, in_steps(interval, run.scale(), plugin.slot().slot + ".interval"),
          plugin.slot().slot, plugin.slot().type};
}

std::vector<report::SinkThread::Entry> sink_entries(Run& run) {
  std::vector<report::SinkThread::Entry> entries;
  for (ActivePlugin& plugin : run.plugins())
    if (plugin.slot().kind == Sink::kind.name) entries.push_back(sink_entry(plugin, run));
  return entries;
}

report::Status status_of(Ending ending) {
  switch (ending) {
    case Ending::completed: return report::Status::completed;
    case Ending::signal:
    case Ending::wall_time: return report::Status::interrupted;
    case Ending::stopped:
    case Ending::early_stopping: return report::Status::stopped;
  }
  return report::Status::failed;
}

/// Hook time from the bus, the loop's own calls from its timers; both were taken on a sample of the steps.
std::vector<report::PluginUse> plugin_uses(Run& run, const Loop& loop, const report::SinkThread& sinks) {
  const PhaseSeconds& sampled = loop.seconds();
  const double scale = sampled.timed_steps > 0
                           ? static_cast<double>(loop.clock().step) / static_cast<double>(sampled.timed_steps)
                           : 0.0;
  std::vector<report::PluginUse> uses;
  for (ActivePlugin& plugin : run.plugins()) {
    double seconds = plugin.subscriber().sampled_seconds;
    const std::string& kind = plugin.slot().kind;
    if (plugin.slot().slot == "data.train") seconds += sampled.data;
    if (kind == "model") seconds += sampled.model;
    if (kind == "loss") seconds += sampled.loss;
    if (kind == "optimizer") seconds += sampled.optimizer;
    seconds *= scale;
    for (const report::SinkThread::Usage& usage : sinks.usage())
      if (kind == "sink" && usage.id == plugin.slot().id) seconds += usage.seconds;
    uses.push_back({plugin.slot().id, kind, plugin.manifest().version, plugin.file().digest, seconds});
  }
  return uses;
}

std::vector<report::ReportedPlugin> reported(Run& run) {
  std::vector<report::ReportedPlugin> all;
  for (ActivePlugin& plugin : run.plugins())
    all.push_back({plugin.slot().slot, plugin.slot().type, plugin.slot().kind, plugin.file().digest});
  return all;
}

/// The same before there is a run, for what its plugins do while they are made.
std::vector<report::ReportedPlugin> reported(const config::RunConfig& config,
                                             const plugins::Registry& registry) {
  std::vector<report::ReportedPlugin> all;
  for (const config::SlotConfig& slot : config.slots)
    for (const plugins::PluginFile* file : registry.find(slot.kind, slot.type))
      all.push_back({slot.slot, slot.type, slot.kind, file->digest});
  return all;
}

std::int64_t bytes_of(const Snapshot& snapshot) {
  std::int64_t bytes = 0;
  for (const State& state : snapshot.states)
    for (const auto& [name, tensor] : state.tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

/// A disk that fills up while a checkpoint is written costs the run what came since the one before.
void check_space(const std::string& folder, std::int64_t bytes) {
  constexpr std::int64_t checkpoints = 3;
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || static_cast<std::int64_t>(space.available) >= checkpoints * bytes) return;
  throw ConfigError("run.output_dir: " + folder + " has " + std::to_string(space.available >> 20) +
                    " MiB free; a checkpoint of this run takes " + std::to_string(bytes >> 20) +
                    " MiB, and room for three is needed");
}

/// Entries of [[swap]] as requests at steps of this run.
std::vector<control::Entry> entries_of(const std::vector<config::PlannedSwap>& planned, const Run& run) {
  std::vector<control::Entry> entries;
  entries.reserve(planned.size());
  for (const config::PlannedSwap& each : planned)
    entries.push_back({.number = 0,
                       .who = std::string(control::run_file),
                       .step = in_steps(each.at, run.scale(), "swap.at"),
                       .swaps = {each.request}});
  return entries;
}

/// Trains, and fills in the result as far as it comes.
void train_run(Beginning& beginning, const plugins::Registry& registry, const TrainOptions& options,
               Messages& messages, report::FaultReport& faults, report::RunResult& result) {
  report::RunDirectory& directory = beginning.directory;
  const auto quarantined = control::read_quarantine(directory.path());
  for (const control::Quarantined& each : control::leave_out(beginning.config, registry, quarantined))
    beginning.notes.push_back("left out: [" + each.slot + "] " + each.plugin + ", quarantined since step " +
                              std::to_string(each.step) + " (" + each.reason + "); see quarantine.json");
  faults.set_plugins(reported(beginning.config, registry));
  HostOutputs outputs;
  outputs.log = [&](LogLevel level, const std::string& text) { messages.send(level, text); };
  const Clock* clock = nullptr;
  outputs.journal = [&](const std::string& who, std::string_view what, std::string_view why) {
    directory.journal({clock ? clock->step : 0, who, std::string(what), std::string(why), {}});
  };
  std::optional<Checkpoints> checkpoints;  // outlives the run, whose plugin may still be writing
  control::Commander* commands = nullptr;
  outputs.swap = [&](config::SwapRequest request, const std::string& who) {
    if (commands == nullptr)
      throw PluginError("asks for a swap before the training begins; it can from fit_start on");
    commands->ask(std::move(request), who);
  };
  Run run(beginning.config, registry, std::move(outputs));
  clock = &run.clock();
  run.set_file(options.resolved_toml);
  run.set_quarantined(quarantined);
  const config::RunConfig& config = run.config();
  std::optional<report::SinkThread> sinks;
  std::optional<control::Channel> channel;
  std::optional<control::Commander> commander;
  const Loop* loop = nullptr;
  const auto began = std::chrono::steady_clock::now();
  const auto conclude = [&] {
    const Clock& clock = run.clock();
    result.steps = clock.step;
    result.epochs = clock.epoch;
    result.samples = clock.samples;
    result.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (loop) result.metrics.assign(loop->latest().begin(), loop->latest().end());
    commands = nullptr;
    if (commander) result.swaps = commander->counts();
    commander.reset();
    channel.reset();
    run.shutdown();
    messages.set_sinks(nullptr);
    if (sinks) sinks->close();
    if (loop && sinks) result.plugins = plugin_uses(run, *loop, *sinks);
  };
  const auto journal = [&](std::string_view who, std::string_view what, std::string_view why) {
    directory.journal({run.clock().step, std::string(who), std::string(what), std::string(why), {}});
    if (what == "disabled" || what.starts_with("stop"))  // the rest may come every step
      messages.send(LogLevel::warning, std::string(who) + ": " + std::string(what) + ": " + std::string(why));
  };
  try {
    run.build_model();
    if (config.run.load == config::RunKeys::Load::weights)
      copy_weights(run.weights(), checkpoint::load_weights(config.run.resume), config.run.resume,
                   config.run.load_match);
    RunInfo info{.name = config.run.name,
                 .directory = directory.path(),
                 .started = report::timestamp(),
                 .total_steps = run.scale().total_steps,
                 .steps_per_epoch = run.scale().steps_per_epoch,
                 .loader_workers = config.data.workers,
                 .terminal = options.color,
                 .quiet = options.quiet,
                 .resumed_at = beginning.resumed ? beginning.loaded->step : 0};
    sinks.emplace(std::move(info), sink_entries(run), [&](std::string_view line) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    });
    messages.set_sinks(&*sinks);

    LoopParts parts;
    parts.signal = &caught_signal;
    parts.log_due = [&](std::int64_t step) { return sinks->due(step); };
    parts.record = [&](Record record) { sinks->push(std::move(record)); };
    parts.journal = journal;
    checkpoints.emplace(run, checkpoint_folder(directory));
    parts.checkpoint = checkpoints->parts();
    checkpoints->set_completion([&](Snapshot& snapshot) { commander->complete(snapshot); });
    parts.checkpoint.save = [&, save = std::move(parts.checkpoint.save)] {
      sinks->flush();  // what a checkpoint has behind it is not told again
      save();
    };
    parts.control = [&] { commander->at_safe_point(); };
    parts.closing = [&] { commander->close_watches(); };
    parts.recover = [&](const Error& error) {
      if (!commander->recover(error)) return false;
      sinks->go_back(run.clock().step);
      return true;
    };
    run.set_outside({.open =
                         [&](ActivePlugin& plugin) {
                           if (plugin.slot().kind == Checkpointer::kind.name) checkpoints->open(plugin);
                           if (plugin.slot().kind == Sink::kind.name) sink_entry(plugin, run);
                         },
                     .settle =
                         [&](ActivePlugin& plugin) {
                           if (plugin.slot().kind == Checkpointer::kind.name) checkpoints->settle(plugin);
                         },
                     .use =
                         [&](ActivePlugin& plugin) {
                           if (plugin.slot().kind == Checkpointer::kind.name) checkpoints->use(plugin);
                           if (plugin.slot().kind == Sink::kind.name)
                             sinks->replace(sink_entry(plugin, run), run.clock().step);
                         }});
    Loop& built = run.build_loop(std::move(parts));
    loop = &built;
    check_space(directory.path(), bytes_of(run.snapshot()));
    beginning.ledger.replan(beginning.loaded ? entries_of(beginning.planned, run)
                                             : control::ended_of_plan(directory.read_journal()),
                            entries_of(run.config().swaps, run));
    if (!beginning.loaded && quarantined.empty()) Swaps(run).rehearse();
    channel.emplace(directory.path());
    commander.emplace(
        control::CommanderParts{
            .run = &run,
            .channel = &*channel,
            .signal = &caught_signal,
            .journal = [&](const report::JournalEntry& entry) { directory.journal(entry); },
            .warn = [&](const std::string& text) { messages.send(LogLevel::warning, text); },
            .swapped = [&] { faults.set_plugins(reported(run)); },
            .last_checkpoint = [&] { return std::pair(checkpoints->last(), checkpoints->last_step()); }},
        std::move(beginning.ledger));
    commands = &*commander;
    for (const events::HookError& error : beginning.left_out)
      for (ActivePlugin& plugin : run.plugins())
        if (plugin.slot().slot == error.blame().slot && plugin.slot().type == error.blame().plugin)
          std::tie(plugin.subscriber().disabled, plugin.subscriber().error) = std::pair(true, error.what());
    for (const events::Subscriber* each : run.bus().rebuild())
      journal(each->participant.id, "disabled", each->error);
    for (const std::string& note : beginning.notes) journal("host", "resume", note);
    const Ending ending = built.fit([&] {
      if (!beginning.loaded) return;
      commander->go_on_with(std::move(beginning.made));
      run.restore(beginning.loaded->states,
                  [&](const std::string& note) { journal("host", "resume", note); });
      journal("host", "resumed", "from " + beginning.loaded->path);
      messages.send(LogLevel::info, "goes on from step " + std::to_string(beginning.loaded->step) + ", " +
                                        beginning.loaded->path);
      beginning.loaded.reset();
    });
    run.check_weights();
    result.model_digest = run.model_digest();
    result.optimizer_digest = run.optimizer_digest();
    write_safetensors(directory.file("model.safetensors"), run.weights());
    result.status = status_of(ending);
    result.exit_code = result.status == report::Status::interrupted ? ExitCode::resumable : ExitCode::done;
  } catch (const std::exception& error) {
    const auto* hook = dynamic_cast<const events::HookError*>(&error);
    if (hook == nullptr || !hook->rollback()) faults.write(error);  // else the run may go on
    run.fail();
    conclude();
    throw;
  }
  conclude();
}

}  // namespace

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
        train_run(*beginning, registry, options, messages, faults, result);
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
