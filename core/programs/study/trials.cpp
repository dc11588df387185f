#include "core/programs/study/trials.hpp"

#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "core/cli/engine_library.hpp"
#include "core/cli/program.hpp"
#include "core/cli/run_state.hpp"
#include "core/programs/study/launcher.hpp"
#include "core/runfile/print.hpp"
#include "lib/launch.hpp"
#include "lib/read_file.hpp"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

/// Waits until trials of a study that was killed earlier have ended in order, which takes a moment.
void wait_for_writer(const std::string& folder) {
  using namespace std::chrono_literals;
  for (auto waited = 0ms; waited < 60s && holds_run(folder) && going(life_of(folder, 0ms).life);
       waited += 50ms)
    std::this_thread::sleep_for(50ms);
}

std::string text_of(const std::string& file) {
  std::string text = lib::read_file(file).value_or("");
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// Takes what the run's result says: its metrics, if `done`, and how far it came. Returns its exit code; nothing
/// where there is no result.
std::optional<int> read_result(const std::string& folder, bool done, TrialOutcome& outcome) {
  const control::Json result = object_in(text_of(folder + "/result.json"));
  if (!result.is_object()) return std::nullopt;
  outcome.steps = result.value("steps", std::int64_t{0});
  const control::Json data = result.value("data", control::Json::object());
  outcome.rows = data.value("rows", std::int64_t{0});
  outcome.values = data.value("values", std::int64_t{0});
  const control::Json values = result.value("metrics", control::Json::object());
  for (const auto& [name, value] : values.items())
    if (done)
      outcome.metrics[name] =
          value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  return result.value("exit_code", 0);
}

int train(const RunFileOptions& training) {
  return with_run(training, [](const RunFile& run) {
    return engine().train(run.config, run.registry,
                          {.resolved_toml = config::toml_file(run.config.resolved), .quiet = true});
  });
}

/// Returns the same as a command, behind those of the trial that come before it.
std::vector<std::string> command(const StudyTrial& trial, const RunFileOptions& training) {
  const std::string program = home() + "/bin/trainyard";
  std::vector<std::string> folders, words{program, "train", "-q", training.files.front()};
  for (const std::string& folder : training.plugin_folders)
    folders.insert(folders.end(), {"--plugins", folder});
  for (const std::string& set : training.sets) words.insert(words.end(), {"--set", set});
  words.insert(words.end(), folders.begin(), folders.end());
  if (trial.before.empty()) return words;
  std::string line;
  for (const std::vector<std::string>& each : trial.before)
    line += lib::shell_word(program) + " " + lib::shell_words(each) + " " + lib::shell_words(folders) +
            " >/dev/null && ";
  return {"/bin/sh", "-c", line + "exec " + lib::shell_words(words)};
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

std::map<double, double> curve_of(const std::string& run, const std::string& metric) {
  std::map<double, double> curve;
  std::ifstream stream(run + "/metrics.jsonl");
  for (std::string line; std::getline(stream, line);) {
    const control::Json record = object_in(line);
    if (!record.is_object()) continue;
    const control::Json step = record.value("step", control::Json());
    const control::Json values = record.value("values", control::Json());
    if (!step.is_number() || !values.is_object() || !values.contains(metric)) continue;
    if (const control::Json& value = values[metric]; value.is_number())
      curve[step.get<double>()] = value.get<double>();
  }
  return curve;
}

Trials::~Trials() {
  if (running_.empty()) return;
  interrupt();
  for (const Running& each : running_) waitpid(each.process, nullptr, 0);
}

void Trials::start(const StudyTrial& trial, const RunFileOptions& training, const std::string& folder,
                   const std::string& log) {
  wait_for_writer(folder);
  fs::create_directories(fs::path(log).parent_path());
  fs::create_directories(fs::path(folder).parent_path());
  running_.push_back({process(trial, training, log), trial, folder, log, std::chrono::steady_clock::now()});
}

pid_t Trials::process(const StudyTrial& trial, const RunFileOptions& training, const std::string& log) const {
  const std::vector<std::string> words = command(trial, training);
  if (!study_.launch.empty())
    return control::start(launched(study_.launch, words, fs::path(log).replace_extension("sh")), signals_, {},
                          log);
  if (!trial.before.empty()) return control::start(words, signals_, {}, log);
  engine();  // copies of this process have it
  return control::can_fork()
             ? control::start([&] { return exit_code_of([&] { return train(training); }); }, signals_, log)
             : control::start(words, signals_, {}, log);
}

void Trials::interrupt() {
  interrupted_ = true;
  for (const Running& each : running_) {
    const bool has_children = !study_.launch.empty() || !each.trial.before.empty();
    kill(has_children ? -each.process : each.process, SIGTERM);
  }
}

std::vector<EndedTrial> Trials::ended() {
  std::vector<EndedTrial> all;
  std::erase_if(running_, [&](const Running& each) {
    int status = 0;
    rusage used{};
    if (wait4(each.process, &status, WNOHANG, &used) != each.process) return false;
    all.push_back(look_at(each, status));
    all.back().outcome.cpu_seconds = seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
    return true;
  });
  return all;
}

EndedTrial Trials::look_at(const Running& trial, int status) const {
  const control::End end{.child = trial.process, .status = status};
  EndedTrial ended{.outcome = {}, .code = end.code()};
  TrialOutcome& outcome = ended.outcome;
  outcome.trial = trial.trial.name;
  outcome.until = trial.trial.until;
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - trial.begun).count();
  const std::string printed = text_of(trial.log);
  const bool done = end.code() == static_cast<int>(ExitCode::done);
  const std::optional<int> told = read_result(trial.folder, done, outcome);
  if (done) {
    for (const auto& [step, value] : curve_of(trial.folder, study_.metric)) outcome.curve.push_back(value);
    std::error_code ignored;
    if (printed.empty()) fs::remove(trial.log, ignored);
    return ended;
  }
  ended.interrupted =
      interrupted_ && (end.code() == static_cast<int>(ExitCode::resumable) || end.by_signal());
  ended.lost = !study_.launch.empty() && end.code() != told &&
               (end.code() == static_cast<int>(ExitCode::internal) ||
                end.code() > static_cast<int>(ExitCode::distributed));
  const bool diverged = end.code() == static_cast<int>(ExitCode::numeric);
  outcome.end = diverged ? TrialOutcome::End::diverged : TrialOutcome::End::failed;
  if (end.code() == static_cast<int>(ExitCode::resumable)) {
    outcome.error = "it was stopped before its end: by trainer.max_wall_time, or a signal";
    return ended;
  }
  outcome.error =
      printed.empty() || end.by_signal() ? end.text() + (printed.empty() ? "" : ": " + printed) : printed;
  return ended;
}

}  // namespace trainyard::cli
