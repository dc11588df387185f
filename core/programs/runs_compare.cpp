// trainyard runs compare RUN...: shows how runs ended, and in which keys they differ.
#include <iostream>

#include "core/cli/columns.hpp"
#include "core/cli/run_state.hpp"
#include "core/programs/programs.hpp"
#include "core/programs/report.hpp"
#include "core/report/compare.hpp"
#include "core/runfile/value_json.hpp"
#include "lib/printed.hpp"

namespace trainyard::cli {
namespace {

using control::Json;
using report::RunData;

std::string text_of(const report::Point& point) {
  return lib::metric_text(point.value) + " at " + std::to_string(point.step);
}

Json json_of(const report::Point& point) {
  return {{"step", point.step}, {"value", config::json_of(point.value)}};
}

Json json_of(const std::vector<RunData>& runs) {
  const std::vector<std::string> labels = report::labels_of(runs);
  Json json = {{"runs", Json::array()},
               {"groups", Json::array()},
               {"metrics", Json::array()},
               {"differences", Json::array()}};
  for (std::size_t i = 0; i < runs.size(); ++i)
    json["runs"].push_back(
        {{"run", labels[i]}, {"path", runs[i].path}, {"state", runs[i].state}, {"steps", runs[i].steps}});
  for (const report::Group& group : report::groups_of(runs))
    json["groups"].push_back({{"label", group.label}, {"runs", group.runs}});
  for (const report::MetricOutcomes& each : report::outcomes_of(runs)) {
    Json of_run = Json::array();
    for (const auto& outcome : each.of_run)
      of_run.push_back(!outcome ? Json()
                                : Json{{"final", json_of(outcome->last)},
                                       {"best", outcome->best ? json_of(*outcome->best) : Json()}});
    json["metrics"].push_back(
        {{"metric", each.metric},
         {"lower_is_better", each.lower_is_better ? Json(*each.lower_is_better) : Json()},
         {"runs", std::move(of_run)}});
  }
  for (const report::DifferingKey& each : report::differing_keys(runs))
    json["differences"].push_back({{"key", each.key}, {"values", each.values}});
  return json;
}

std::vector<std::string> header(const std::string& first, const std::vector<RunData>& runs) {
  std::vector<std::string> row = {first};
  for (const std::string& label : report::labels_of(runs)) row.push_back(printable(label));
  return row;
}

std::vector<std::vector<std::string>> metric_rows(const std::vector<RunData>& runs) {
  std::vector<std::vector<std::string>> rows = {header("metric", runs)};
  rows.push_back({"state"});
  for (const RunData& run : runs)
    rows.back().push_back(run.state + ", " + std::to_string(run.steps) + " steps");
  for (const report::MetricOutcomes& each : report::outcomes_of(runs)) {
    rows.push_back({printable(each.metric)});
    for (const auto& outcome : each.of_run) rows.back().push_back(outcome ? text_of(outcome->last) : "-");
    if (!each.lower_is_better) continue;
    rows.push_back({*each.lower_is_better ? "  lowest" : "  highest"});
    for (const auto& outcome : each.of_run)
      rows.back().push_back(outcome && outcome->best ? text_of(*outcome->best) : "-");
  }
  return rows;
}

struct CompareArguments {
  std::vector<std::string> runs;
  Format format = Format::text;
};

int compare(CompareArguments& given) {
  const std::vector<RunData> runs = read_runs(given.runs);
  if (given.format == Format::json) {
    std::cout << json_of(runs).dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
    return 0;
  }
  print_columns(metric_rows(runs), "", std::cout);
  std::vector<std::vector<std::string>> keys = {header("key", runs)};
  for (const report::DifferingKey& each : report::differing_keys(runs)) {
    keys.push_back({printable(each.key)});
    for (const std::string& value : each.values)
      keys.back().push_back(value.empty() ? "-" : printable(value));
  }
  std::cout << '\n';
  if (keys.size() > 1)
    print_columns(keys, "", std::cout);
  else
    std::cout << (runs.size() > 1 ? "the run files are the same\n" : "one run: nothing to compare it with\n");
  return 0;
}

}  // namespace

void add_runs_compare(Arguments runs, CommandLine& line) {
  Arguments verb =
      runs.further_verb("compare", "final and best metrics of runs, and the keys in which they differ");
  const auto given = std::make_shared<CompareArguments>();
  verb.add("run", given->runs, "directories of runs, or their names below runs/").required().offers("run");
  add_format(verb, given->format);
  when_chosen(verb, line, given, compare);
}

}  // namespace trainyard::cli
