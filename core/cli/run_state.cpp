#include "core/cli/run_state.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>

#include <fcntl.h>
#include <sys/file.h>

#include <trainyard/error.hpp>

#include "core/cli/client.hpp"
#include "core/runfile/suggest.hpp"
#include "lib/printed.hpp"
#include "lib/read_file.hpp"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using control::Json;

constexpr std::string_view lives[] = {"running",     "paused", "completed", "stopped",
                                      "interrupted", "failed", "killed"};

/// Tests the lock by taking it, shared, and giving it back, which is the only way to query it.
bool locked(const std::string& path) {
  const control::Descriptor journal(::open((path + "/journal.jsonl").c_str(), O_RDONLY | O_CLOEXEC));
  return journal && ::flock(journal.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

Json json_file(const std::string& path) {
  std::error_code absent;
  if (!fs::is_regular_file(path, absent)) return {};
  return object_in(lib::read_file(path).value_or(""));
}

Life ending_of(const Json& result) {
  const auto status = result.is_object() ? result.value("status", Json()) : Json();
  for (const Life life : {Life::completed, Life::stopped, Life::interrupted, Life::failed})
    if (status == name(life)) return life;
  return Life::killed;
}

void take_numbers(const Json& from, std::map<std::string, double>& to) {
  if (!from.is_object()) return;
  for (const auto& [key, value] : from.items())
    if (const std::optional<double> number = control::number(value)) to[key] = *number;
}

/// Asks the run for its status through its socket.
void ask(RunState& run, std::chrono::milliseconds patience) {
  try {
    control::Client client(run.path);
    run.life = Life::running;  // a process listens
    run.status = client.ask({.verb = control::Verb::status}, patience).get<control::Status>();
    if (run.status->state == control::RunState::paused) run.life = Life::paused;
  } catch (const control::NoAnswer&) {
  } catch (const std::exception&) {  // another release: its files have to do
  }
}

}  // namespace

std::string plural(std::int64_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string_view name(Life life) {
  return lives[static_cast<std::size_t>(life)];
}

bool holds_run(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path + "/config.toml", ignored) &&
         fs::is_regular_file(path + "/journal.jsonl", ignored);
}

RunState life_of(const std::string& path, std::chrono::milliseconds patience) {
  if (!holds_run(path))
    throw ConfigError("'" + path +
                      "' holds no run: name the run.output_dir of one (`trainyard runs` lists them)");
  RunState run{.path = path};
  ask(run, patience);
  if (run.life == Life::killed && locked(path)) run.life = Life::running;
  if (!going(run.life)) {
    run.result = json_file(path + "/result.json");
    run.life = ending_of(run.result);
  }
  for (const char* file : {"/config.toml", "/journal.jsonl", "/metrics.jsonl", "/result.json"}) {
    std::error_code absent;
    const auto time = fs::last_write_time(path + file, absent);
    if (!absent) run.changed = std::max(run.changed, time);
  }
  return run;
}

void take_record(const Json& record, RunState& run) {
  if (!record.is_object()) return;
  if (const Json step = record.value("step", Json()); step.is_number_integer()) run.steps = step;
  take_numbers(record.value("values", Json()), run.metrics);
}

void take_report(RunState& run) {
  if (run.result.is_object()) {
    if (const Json steps = run.result.value("steps", Json()); steps.is_number_integer()) run.steps = steps;
    take_numbers(run.result.value("metrics", Json()), run.metrics);
  }
  if (!run.status) return;
  run.steps = run.status->step;
  run.total_steps = run.status->total_steps;
  for (const auto& [key, value] : run.status->metrics) run.metrics[key] = value;
}

RunState look_at(const std::string& path, std::chrono::milliseconds patience) {
  RunState run = life_of(path, patience);
  for (const std::string& line : last_lines(path + "/metrics.jsonl", 2000)) take_record(object_in(line), run);
  take_report(run);
  return run;
}

std::string find_run(const std::string& given) {
  std::error_code ignored;
  const std::string below = "runs/" + given;
  return !fs::exists(given, ignored) && fs::is_directory(below, ignored) ? below : given;
}

std::string runs_instead_of(const std::string& given) {
  std::error_code ignored;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator("runs", ignored))
    if (holds_run(entry.path().string())) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return given + " does not exist; " + config::suggestion(given, names, "runs/ has");
}

std::string run_file_of(const std::string& given) {
  std::error_code ignored;
  const std::string file = find_run(given) + "/config.toml";
  return fs::is_regular_file(file, ignored) ? file : given;
}

std::string how_it_ended(const RunState& run) {
  const std::string after = " after " + plural(run.steps, "step");
  switch (run.life) {
    case Life::running:
    case Life::paused: return "a process holds the run, but does not answer";
    case Life::completed: return "it was completed" + after;
    case Life::stopped: return "it was stopped" + after + "; its journal.jsonl says why";
    case Life::interrupted: return "it was interrupted" + after + " and can be resumed";
    case Life::failed: {
      const Json error = run.result.value("error", Json());
      return "it failed" + after + (error.is_string() ? ": " + error.get<std::string>() : "");
    }
    case Life::killed:
      return "its process is gone and left no result.json, " + plural(run.steps, "step") + " were recorded";
  }
  return {};
}

std::string journal_text(const std::string& line) {
  const Json entry = object_in(line);
  if (!entry.is_object()) return {};
  const auto text = [&](const char* key) {
    const Json value = entry.value(key, Json());
    return value.is_string() ? printable(value.get<std::string>()) : std::string();
  };
  std::string shown = "step " + entry.value("step", Json()).dump();
  if (const std::string plugin = text("plugin"); !plugin.empty()) shown += "  " + plugin;
  shown += "  " + text("what");
  if (const std::string why = text("why"); !why.empty()) shown += ": " + why;
  return shown;
}

std::vector<std::string> last_lines(const std::string& file, std::size_t count) {
  constexpr std::streamoff most = std::streamoff{256} * 1024;
  std::error_code absent;
  std::ifstream stream;
  if (fs::is_regular_file(file, absent)) stream.open(file, std::ios::binary | std::ios::ate);
  if (!stream.is_open()) return {};
  const std::streamoff size = stream.tellg();
  const std::streamoff begin = std::max<std::streamoff>(size - most, 0);
  stream.seekg(begin);
  std::vector<std::string> lines;
  std::string line;
  if (begin > 0) std::getline(stream, line);  // skips the rest of a cut line
  while (std::getline(stream, line) && !stream.eof()) lines.push_back(line);
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  return lines;
}

std::string printable(std::string_view text) {
  std::string safe(text);
  for (char& c : safe)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return safe;
}

std::string span_text(double seconds) {
  const auto whole = static_cast<long long>(std::clamp(std::ceil(seconds), 0.0, 1e12));
  const long long minutes = whole / 60, hours = whole / 3600, days = whole / 86400;
  if (days >= 2) return lib::printed("%lldd %lldh", days, hours % 24);
  if (hours > 0) return lib::printed("%lld:%02lld:%02lld", hours, minutes % 60, whole % 60);
  return lib::printed("%lld:%02lld", minutes, whole % 60);
}

}  // namespace trainyard::cli
