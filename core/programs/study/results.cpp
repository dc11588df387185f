#include "core/programs/study/results.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/programs/study/plot.hpp"
#include "core/rundir/run_directory.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/value_json.hpp"
#include "lib/escapes.hpp"
#include "lib/printed.hpp"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Returns the shortest text that reads back as the same number.
std::string exact_number(double value) {
  return std::isnan(value) ? "nan" : lib::shortest(value);
}

std::string row(const std::vector<std::string>& entries) {
  std::string line = "|";
  for (const std::string& entry : entries) line += " " + entry + " |";
  return line + "\n";
}

std::string csv(const std::vector<std::string>& entries) {
  std::string line;
  for (const std::string& entry : entries)
    line += (&entry == &entries.front() ? "" : ",") + lib::csv_field(entry, ",\"\n");
  return line + "\n";
}

std::vector<std::string> metrics_of(const StudyOptions& study) {
  std::vector<std::string> metrics{study.metric};
  metrics.insert(metrics.end(), study.also.begin(), study.also.end());
  return metrics;
}

std::string value_of(const TrialOutcome& outcome, const std::string& metric) {
  const auto found = outcome.metrics.find(metric);
  if (found != outcome.metrics.end()) return exact_number(found->second);
  return outcome.end == TrialOutcome::End::diverged ? "nan" : "";
}

/// Compares names by their numbers: "0010" comes after "0009", and "s10" after "s9".
bool before(const Finished& a, const Finished& b) {
  return ::strverscmp(a.trial.name.c_str(), b.trial.name.c_str()) < 0;
}

std::vector<Finished> sorted(std::vector<Finished> trials) {
  std::ranges::stable_sort(trials, before);
  return trials;
}

Json table_json(const ResultTable& table) {
  Json rows = Json::array();
  for (const std::vector<ResultCell>& cells : table.rows) {
    Json line = Json::array();
    for (const ResultCell& cell : cells) {
      Json entry = {{"text", cell.text}};
      if (cell.value) entry["value"] = config::json_of(*cell.value);
      if (cell.half) entry["interval"] = config::json_of(*cell.half);
      line.push_back(std::move(entry));
    }
    rows.push_back(std::move(line));
  }
  return {{"title", table.title}, {"columns", table.columns}, {"rows", std::move(rows)}};
}

Json trial_json(const Finished& each) {
  Json labels = Json::object(), metrics = Json::object();
  for (const auto& [name, value] : each.trial.labels) labels[name] = value;
  for (const auto& [name, value] : each.outcome.metrics) metrics[name] = config::json_of(value);
  Json json = {{"trial", each.trial.name},
               {"run", each.folder},
               {"until", each.trial.until ? Json(each.trial.until->text()) : Json()},
               {"labels", std::move(labels)},
               {"end", ends_of_trials[static_cast<int>(each.outcome.end)]},
               {"seconds", config::json_of(each.outcome.seconds)},
               {"metrics", std::move(metrics)}};
  if (!each.outcome.error.empty()) json["error"] = each.outcome.error;
  return json;
}

/// Returns a configuration as the run file of a run of its own.
std::string best_file(const StudyBest& best, const StudyFile& file, const std::string& name, StudyRun& run) {
  Table table = run.configs().resolved(best.trial).resolved;
  table.erase("study");
  Table& keys = table.find("run")->as<Table>();
  keys.set("name", Value(name));
  keys.set("output_dir", Value("runs/" + name));
  std::string comment = "# Best of the study " + file.name + ", by " + file.common.metric + ". Of " +
                        best.trial.run + ", with\n";
  for (const std::string& change : changes_of(best.trial)) comment += "#   " + change + "\n";
  return comment + config::toml_file(table);
}

std::string file_name(std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '-';
  for (std::size_t at; (at = name.find("--")) != std::string::npos;) name.erase(at, 1);
  return name;
}

}  // namespace

std::string tables_text(const std::vector<ResultTable>& tables) {
  std::string text;
  for (const ResultTable& table : tables) {
    text += (text.empty() ? "" : "\n") + table.title + ":\n\n" + row(table.columns);
    text += row(std::vector<std::string>(table.columns.size(), "---"));
    for (const std::vector<ResultCell>& cells : table.rows) {
      std::vector<std::string> entries(cells.size());
      std::ranges::transform(cells, entries.begin(), &ResultCell::text);
      text += row(entries);
    }
  }
  return text;
}

std::string runs_csv(const std::vector<Finished>& trials, const StudyOptions& study) {
  std::vector<std::string> columns;
  const std::vector<std::string> metrics = metrics_of(study);
  std::string text;
  for (const Finished& each : sorted(trials)) {
    std::vector<std::string> names{"trial"}, line{each.trial.name};
    for (const auto& [name, value] : each.trial.labels) {
      names.push_back(name);
      line.push_back(value);
    }
    for (const char* name : {"until", "end", "seconds"}) names.emplace_back(name);
    line.push_back(each.trial.until ? each.trial.until->text() : "");
    line.emplace_back(ends_of_trials[static_cast<int>(each.outcome.end)]);
    line.push_back(lib::printed("%.2f", each.outcome.seconds));
    for (const std::string& metric : metrics) {
      names.push_back(metric);
      line.push_back(value_of(each.outcome, metric));
    }
    if (columns.empty()) text = csv(columns = names);
    text += csv(line);
  }
  return text;
}

std::vector<std::string> write_results(const StudyResult& result, const StudyFile& file, StudyRun& run) {
  const std::string& folder = run.folder();
  report::write_atomically(folder + "/runs.csv", runs_csv(run.finished(), file.common));
  report::write_atomically(folder + "/table.md", tables_text(result.tables));
  std::vector<ResultPlot> plots = result.plots;
  std::ranges::move(learning_curves(run.finished(), file.common.metric, result.best),
                    std::back_inserter(plots));
  report::write_atomically(folder + "/plot.svg", svg(file.name, plots));
  std::vector<std::string> paths;
  for (const StudyBest& best : result.best) {
    const std::string name = best.name.empty() ? "best" : "best-" + file_name(best.name);
    paths.push_back(folder + "/" + name + ".toml");
    report::write_atomically(paths.back(), best_file(best, file, file.name + "-" + name, run));
  }
  return paths;
}

std::string results_json(const StudyResult& result, const StudyFile& file, const StudyRun& run,
                         const std::vector<std::string>& best) {
  Json tables = Json::array(), trials = Json::array(), counts = Json::object(), bests = Json::array();
  for (const ResultTable& table : result.tables) tables.push_back(table_json(table));
  for (const char* word : ends_of_trials) counts[word] = 0;
  for (const Finished& each : sorted(run.finished())) {
    trials.push_back(trial_json(each));
    counts[ends_of_trials[static_cast<int>(each.outcome.end)]] =
        counts[ends_of_trials[static_cast<int>(each.outcome.end)]].get<int>() + 1;
  }
  for (std::size_t i = 0; i < best.size(); ++i)
    bests.push_back(
        {{"name", result.best[i].name}, {"file", best[i]}, {"changes", changes_of(result.best[i].trial)}});
  const Json all = {{"study", file.name},
                    {"type", file.plugin.manifest.name},
                    {"metric", file.common.metric},
                    {"goal", trainyard::Words<StudyGoal>::words[static_cast<std::size_t>(file.common.goal)]},
                    {"folder", run.folder()},
                    {"counts", std::move(counts)},
                    {"tables", std::move(tables)},
                    {"best", std::move(bests)},
                    {"trials", std::move(trials)}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace trainyard::cli
