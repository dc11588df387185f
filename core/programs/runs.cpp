#include "core/programs/runs.hpp"

#include <algorithm>
#include <chrono>
#include <iostream>

#include <trainyard/error.hpp>

#include "core/cli/columns.hpp"
#include "core/programs/programs.hpp"
#include "core/runfile/value_json.hpp"
#include "lib/printed.hpp"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using control::Json;

constexpr int deepest = 5;

void find(const fs::path& folder, int depth, std::vector<RunState>& found) {
  if (holds_run(folder.string())) {
    try {
      found.push_back(look_at(folder.string(), loop_patience));
    } catch (const ConfigError&) {}  // it was removed meanwhile
    return;
  }
  if (depth == deepest) return;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code gone;
    if (!entry->is_symlink(gone) && entry->is_directory(gone)) find(entry->path(), depth + 1, found);
  }
}

/// Returns the most telling metric of the validation: one other than the loss, else the loss.
std::pair<std::string, double> last_metric(const RunState& run) {
  std::pair<std::string, double> best;
  for (const auto& [key, value] : run.metrics)
    if (key.starts_with("val/") && (best.first.empty() || best.first == "val/loss")) best = {key, value};
  return best;
}

double age(const RunState& run) {
  return std::chrono::duration<double>(fs::file_time_type::clock::now() - run.changed).count();
}

Json json_of(const RunState& run) {
  Json metrics = Json::object();
  for (const auto& [key, value] : run.metrics) metrics[key] = config::json_of(value);
  return {{"path", run.path},
          {"state", name(run.life)},
          {"steps", run.steps},
          {"total_steps", run.total_steps > 0 ? Json(run.total_steps) : Json()},
          {"metrics", std::move(metrics)},
          {"age_seconds", age(run)}};
}

}  // namespace

std::vector<RunState> find_runs(const std::string& folder) {
  std::vector<RunState> found;
  find(folder, 0, found);
  std::sort(found.begin(), found.end(), [](const RunState& a, const RunState& b) { return a.path < b.path; });
  return found;
}

int runs(const std::string& folder, bool json, std::ostream& out, std::ostream& errors) {
  std::error_code error;
  [[maybe_unused]] const fs::directory_iterator readable(folder, error);
  if (error) {
    errors << "trainyard runs: cannot read '" << folder << "': " << error.message()
           << "; name the folder that holds runs\n";
    return 1;
  }
  const std::vector<RunState> found = find_runs(folder);
  if (json) {
    Json list = Json::array();
    for (const RunState& run : found) list.push_back(json_of(run));
    out << list.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {{"run", "state", "steps", "validation", "last written"}};
  for (const RunState& run : found) {
    const auto [metric, value] = last_metric(run);
    rows.push_back({printable(run.path),
                    std::string(name(run.life)) + (run.life == Life::interrupted ? " (resumable)" : ""),
                    std::to_string(run.steps) +
                        (run.total_steps > 0 ? " of " + std::to_string(run.total_steps) : std::string()),
                    metric.empty() ? "-" : printable(metric) + " " + lib::metric_text(value),
                    span_text(std::max(age(run), 0.0)) + " ago"});
  }
  if (found.empty())
    out << "no runs below " << folder << '\n';
  else
    print_columns(rows, "", out);
  return 0;
}

namespace {

struct RunsArguments {
  std::string folder = "runs";
  Format format = Format::text;
};

int list_runs(RunsArguments& given) {
  return runs(given.folder, given.format == Format::json, std::cout, std::cerr);
}

}  // namespace

void add_runs(Arguments verb, CommandLine& line) {
  const auto given = std::make_shared<RunsArguments>();
  verb.add("folder", given->folder, "where to look (runs)");
  add_format(verb, given->format);
  when_chosen(verb, line, given, list_runs);
  add_runs_compare(verb, line);
}

}  // namespace trainyard::cli
