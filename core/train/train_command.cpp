#include "core/train/train_command.hpp"

#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>

#include <trainyard/safetensors.hpp>

#include "core/events/watchdog.hpp"
#include "core/report/fault_report.hpp"
#include "core/report/run_directory.hpp"
#include "core/report/run_log.hpp"
#include "core/report/sink_thread.hpp"
#include "core/report/summary.hpp"
#include "core/train/guard.hpp"
#include "core/train/run.hpp"

namespace trainyard::train {
namespace {

std::atomic<int> caught_signal{0};

/// For its lifetime SIGINT and SIGTERM end the run at a step boundary; a second one ends the process at once.
class SignalScope {
 public:
  SignalScope() {
    caught_signal = 0;
    struct sigaction action {};
    action.sa_handler = [](int number) { caught_signal = number; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, &action, &old_int_);
    sigaction(SIGTERM, &action, &old_term_);
  }
  ~SignalScope() {
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
  }
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

 private:
  struct sigaction old_int_ {
  }, old_term_{};
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

std::vector<report::SinkThread::Entry> sink_entries(Run& run, const config::RunConfig& config) {
  std::vector<report::SinkThread::Entry> entries;
  for (ActivePlugin& plugin : run.plugins()) {
    if (plugin.slot().kind != Sink::kind.name) continue;
    Sink& sink = plugin.as<Sink>();
    const Duration& interval = sink.common.interval.count > 0 ? sink.common.interval : config.log_interval;
    entries.push_back({plugin.slot().id, &sink,
                       in_steps(interval, run.scale(), plugin.slot().slot + ".interval"), plugin.slot().slot,
                       plugin.slot().type});
  }
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
std::vector<report::PluginUse> plugin_uses(Run& run, const config::RunConfig& config, const Loop& loop,
                                           const report::SinkThread& sinks) {
  const PhaseSeconds& sampled = loop.seconds();
  const double scale = sampled.timed_steps > 0
                           ? static_cast<double>(loop.clock().step) / static_cast<double>(sampled.timed_steps)
                           : 0.0;
  std::vector<report::PluginUse> uses;
  for (ActivePlugin& plugin : run.plugins()) {
    double seconds = plugin.subscriber().sampled_seconds;
    const std::string& kind = plugin.slot().kind;
    if (plugin.slot().slot == config.train.dataset.slot) seconds += sampled.data;
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

/// Trains, and fills in the result as far as it comes.
void train_run(const config::RunConfig& config, const plugins::Registry& registry,
               const TrainOptions& options, report::RunDirectory& directory, Messages& messages,
               report::FaultReport& faults, report::RunResult& result) {
  HostOutputs outputs;
  outputs.log = [&](LogLevel level, const std::string& text) { messages.send(level, text); };
  Run run(config, registry, std::move(outputs));
  faults.set_plugins(reported(run));
  std::optional<report::SinkThread> sinks;
  const Loop* loop = nullptr;
  const auto began = std::chrono::steady_clock::now();
  const auto conclude = [&] {
    const Clock& clock = run.clock();
    result.steps = clock.step;
    result.epochs = clock.epoch;
    result.samples = clock.samples;
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (loop) result.metrics.assign(loop->latest().begin(), loop->latest().end());
    run.shutdown();
    messages.set_sinks(nullptr);
    if (sinks) sinks->close();
    if (loop && sinks) result.plugins = plugin_uses(run, config, *loop, *sinks);
  };
  try {
    run.build_model();
    RunInfo info{.name = config.name,
                 .directory = directory.path(),
                 .started = report::timestamp(),
                 .total_steps = run.scale().total_steps,
                 .steps_per_epoch = run.scale().steps_per_epoch,
                 .terminal = options.color,
                 .quiet = options.quiet};
    sinks.emplace(std::move(info), sink_entries(run, config), [&](std::string_view line) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    });
    messages.set_sinks(&*sinks);

    LoopParts parts;
    parts.signal = &caught_signal;
    parts.log_due = [&](std::int64_t step) { return sinks->due(step); };
    parts.record = [&](Record record) { sinks->push(std::move(record)); };
    parts.journal = [&](std::string_view who, std::string_view what, std::string_view why) {
      directory.journal({run.clock().step, std::string(who), std::string(what), std::string(why)});
      if (what == "disabled" || what.starts_with("stop"))  // the rest may come every step
        messages.send(LogLevel::warning,
                      std::string(who) + ": " + std::string(what) + ": " + std::string(why));
    };
    Loop& built = run.build_loop(std::move(parts));
    loop = &built;
    const Ending ending = built.fit();
    result.model_digest = run.model_digest();
    result.optimizer_digest = run.optimizer_digest();
    write_safetensors(directory.file("model.safetensors"), run.weights());
    result.status = status_of(ending);
    result.exit_code = result.status == report::Status::interrupted ? ExitCode::resumable : ExitCode::done;
  } catch (const std::exception& error) {
    faults.write(error);
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
  report::RunDirectory directory =
      report::RunDirectory::create(config.output_dir, options.resolved_toml, options.overwrite);
  Messages messages(directory.file("run.log"));
  report::FaultReport faults(directory.path(), options.resolved_toml);
  std::optional<events::Watchdog> watchdog;
  if (config.guard.deadline_seconds > 0)
    watchdog.emplace(events::Watchdog::Seconds(config.guard.deadline_seconds),
                     [&](const std::string& overdue) {
                       if (config.guard.end_overdue) faults.end_hung();
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
    train_run(config, registry, options, directory, messages, faults, result);
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
