#include "core/report/run_data.hpp"

#include <filesystem>
#include <fstream>

#include <trainyard/error.hpp>

#include "core/runfile/parse.hpp"
#include "lib/read_file.hpp"

namespace trainyard::report {
namespace {

using control::Json;

const Value* at(const Table& config, std::string_view table, std::string_view key) {
  const Value* found = config.find(table);
  const Table* inner = found != nullptr ? found->get_if<Table>() : nullptr;
  return inner != nullptr ? inner->find(key) : nullptr;
}

std::string text_of(const Value* value) {
  const std::string* text = value != nullptr ? value->get_if<std::string>() : nullptr;
  return text != nullptr ? *text : std::string();
}

/// Returns the file that the run's sink `jsonl` writes; empty if it has none.
std::string metrics_file(const Table& config) {
  const Value* sinks = at(config, "logging", "sinks");
  const Array* list = sinks != nullptr ? sinks->get_if<Array>() : nullptr;
  if (list == nullptr) return {};
  for (const Value& each : *list) {
    const Table* sink = each.get_if<Table>();
    if (sink == nullptr || text_of(sink->find("type")) != "jsonl") continue;
    const std::string file = text_of(sink->find("file"));
    return file.empty() ? "metrics.jsonl" : file;
  }
  return {};
}

void add(Curve& curve, Point point) {
  while (!curve.empty() && curve.back().step >= point.step) curve.pop_back();
  curve.push_back(point);
}

void take(const Json& record, RunData& run) {
  const Json step = record.value("step", Json());
  if (!step.is_number_integer()) {
    ++run.unread;
    return;
  }
  run.steps = step.get<std::int64_t>();
  const auto values = record.find("values");
  if (values == record.end() || !values->is_object()) return;
  for (const auto& [metric, value] : values->items())
    if (const std::optional<double> number = control::number(value))
      add(run.curves[metric], {run.steps, *number});
}

void read_metrics(const std::string& file, RunData& run) {
  std::ifstream stream(file);
  for (std::string line;
       std::getline(stream, line) && !stream.eof();) {  // a line without its end waits for it
    const Json record = control::object_in(line);
    if (record.is_object())
      take(record, run);
    else
      ++run.unread;
  }
}

std::map<std::string, std::string> read_tables(const std::string& folder) {
  std::map<std::string, std::string> tables;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    if (entry.path().extension() == ".tsv")
      tables[entry.path().stem().string()] = lib::read_file(entry.path()).value_or("");
  return tables;
}

}  // namespace

std::string RunData::config_of(std::string_view table, std::string_view key) const {
  return text_of(at(config, table, key));
}

RunData read_run(const std::string& path) {
  RunData run;
  run.path = path;
  const std::string file = path + "/config.toml";
  config::Findings findings;
  std::optional<Table> config = config::parse_text(file, RunDirectory::read_config(path), findings);
  if (!config) throw DataError(file + " is no run file any more: " + findings.text());
  run.config = std::move(*config);
  run.name = run.config_of("run", "name");
  if (run.name.empty()) run.name = std::filesystem::path(path).filename().string();

  const std::string sink = metrics_file(run.config);
  if (sink.empty())
    throw DataError(
        "'" + path +
        "' has no metrics to show: its run file has no sink that writes them; add [[logging.sinks]] "
        "with type = \"jsonl\"");
  read_metrics(path + "/" + sink, run);
  if (run.curves.empty())
    throw DataError("'" + path + "' has no metrics to show: " + sink +
                    " holds no value yet; a run writes the first after logging.interval steps");
  run.tables = read_tables(path + "/report");
  run.journal = RunDirectory::read_journal(path);
  run.result = control::object_in(lib::read_file(path + "/result.json").value_or(""));
  return run;
}

}  // namespace trainyard::report
