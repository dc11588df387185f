#include "core/engine/verbs/commands.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <trainyard/data_tool.hpp>
#include <trainyard/recorder.hpp>
#include <trainyard/rule.hpp>
#include <trainyard/sink.hpp>

#include "core/engine/train/guard.hpp"
#include "core/engine/train/opening.hpp"
#include "core/engine/verbs/model_show.hpp"
#include "core/engine/verbs/run_workshop.hpp"
#include "core/engine/verbs/signal_scope.hpp"
#include "core/engine/verbs/terminal.hpp"
#include "core/rundir/as_left.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/rank_place.hpp"
#include "core/runfile/value_json.hpp"
#include "lib/printed.hpp"
#include "lib/read_file.hpp"

namespace trainyard::train {
namespace {

/// The data of a run, for tools that need nothing else. The run, not opened, outlives it.
class RunData final : public DataWorkshop {
 public:
  RunData(Run& run, std::string tool) : run_(run), tool_(std::move(tool)) {}

  std::vector<std::string> splits() const override {
    std::vector<std::string> names;
    for (const char* name : {"train", "val", "test"})
      if (run_.config().split(name) != nullptr) names.emplace_back(name);
    return names;
  }
  Dataset& dataset(std::string_view split) override {
    return run_.live().layer.plugin("data." + std::string(split)).as<Dataset>();
  }
  std::vector<std::int64_t> open(std::string_view split) override {
    return Opening(run_.live(), run_.config(), run_.live().layer).taken(std::string(split));
  }
  void progress(std::int64_t done, std::int64_t total) override { show_progress(tool_, done, total); }
  bool stopping() const override { return SignalScope::caught() > 0; }

 private:
  Run& run_;
  const std::string tool_;
};

using Json = nlohmann::ordered_json;

/// Returns the config without plugins that write into the run's directory or observe the run.
config::RunConfig quiet(config::RunConfig config) {
  static const std::set<std::string> out = {Sink::kind.name, Rule::kind.name, Recorder::kind.name};
  std::erase_if(config.slots, [](const config::SlotConfig& slot) { return out.contains(slot.kind); });
  return config;
}

std::string text_of(const Value& value) {
  if (const auto* held = value.get_if<std::string>()) return *held;
  if (const auto* held = value.get_if<double>()) return lib::printed("%.6g", *held);
  return config::toml_text(value);
}

void print_json(const std::string& tool, const Report& report) {
  Json facts = Json::object(), rows = Json::array();
  for (const auto& [name, value] : report.facts) facts[name] = config::json_of(value);
  for (const std::vector<Value>& row : report.rows) {
    Json& object = rows.emplace_back(Json::object());
    for (std::size_t i = 0; i < row.size(); ++i) object[report.columns[i]] = config::json_of(row[i]);
  }
  const Json all = {{"tool", tool}, {"facts", std::move(facts)}, {"rows", std::move(rows)}};
  std::printf("%s\n", all.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

void print_text(const Report& report) {
  std::vector<std::vector<std::string>> facts, table;
  for (const auto& [name, value] : report.facts) facts.push_back({name, text_of(value)});
  std::fputs(aligned(facts).c_str(), stdout);
  if (report.columns.empty()) return;
  table.push_back(report.columns);
  for (const std::vector<Value>& row : report.rows)
    std::ranges::transform(row, std::back_inserter(table.emplace_back()), text_of);
  if (!facts.empty()) std::printf("\n");
  std::fputs(aligned(table).c_str(), stdout);
}

}  // namespace

int tool_command(const config::RunConfig& config, const plugins::Registry& registry,
                 const std::string& weights, bool json) {
  const config::SlotConfig& slot = config.at("tools[0]");
  if (config::RankPlace::of_process().size > 1)
    throw ConfigError(slot.type + " is a tool, which runs in a single process: WORLD_SIZE asks for several");
  const SignalScope signals;
  const std::string path = RunWorkshop::path_of(weights, config);
  // Warnings that stand in the run's log are not repeated.
  HostOutputs outputs = to_terminal(lib::read_file(config.run.output_dir + "/run.log").value_or(""));
  Run run(quiet(control::as_left(path, config, registry, to_stderr)), registry, std::move(outputs), nullptr,
          report::learned_beside(path), Run::Data::closed);
  ActivePlugin plugin = run.make_plugin(slot, registry);
  auto& tool = plugin.as<Tool>();
  RunData data(run, slot.type);
  std::optional<RunWorkshop> workshop;
  auto* const of_data = dynamic_cast<DataTool*>(&tool);
  if (of_data == nullptr) {
    run.open();
    workshop.emplace(run, slot.type, path);
  }
  const Report report =
      guarded(slot, 0, [&] { return of_data != nullptr ? of_data->run_on_data(data) : tool.run(*workshop); });
  run.shutdown();
  if (data.stopping()) {
    std::fprintf(stderr, "trainyard: %s was interrupted\n", slot.type.c_str());
    return static_cast<int>(ExitCode::resumable);
  }
  for (const std::vector<Value>& row : report.rows)
    if (row.size() != report.columns.size())
      throw PluginError(slot.type + " reports a row of " + std::to_string(row.size()) + " cells under " +
                        std::to_string(report.columns.size()) + " columns");
  json ? print_json(slot.type, report) : print_text(report);
  return static_cast<int>(report.code);
}

}  // namespace trainyard::train
