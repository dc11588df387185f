#include "contract/host_run.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "contract/process.hpp"
#include "core/check/samples.hpp"
#include "core/engine/verbs/commands.hpp"
#include "core/plugins/kinds.hpp"
#include "support/folder.hpp"
#include "support/npz_file.hpp"
#include "support/run.hpp"

namespace trainyard::contract {
namespace {

const test::TempFolder& folder() {
  static const test::TempFolder made;
  return made;
}

/// What keeps a run from training; empty: nothing. Most are tried in vain, and what this process loads it keeps.
std::string refusal(const HostRun& run) {
  const Apart tried(run.text());
  const int status = tried.train({}, needs_ranks(run.plugin) ? 2 : 1);
  if (status == 0) return {};
  INFO(run.text() << tried.said() << "status " << status);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) >= static_cast<int>(ExitCode::config)));  // no crash
  return "status " + std::to_string(status) + ": " + tried.said();
}

/// Samples of 16 numbers and of ten classes, as NumPy saves them.
std::string arrays() {
  std::vector<float> inputs;
  std::vector<std::int64_t> targets;
  for (int row = 0; row < 24; ++row) {
    for (int i = 0; i < 16; ++i) inputs.push_back(static_cast<float>((row * 5 + i * 3) % 11));
    targets.push_back(row % 10);
  }
  test::ZipFile file;
  file.add("x.npy", test::npy("<f4", "24, 16", inputs), true);
  file.add("y.npy", test::npy("<i8", "24,", targets));
  return file.file();
}

HostRun search(const plugins::PluginFile& plugin) {
  std::string reasons;
  std::optional<HostRun> found = check::find_run(plugin, materials(), refusal, reasons);
  if (!found)
    FAIL(
        "nothing trains with the " << title(plugin)
                                   << "; if it reads a format of its own, add a small file of that format to "
                                      "core/check/samples.cpp, or to materials():\n"
                                   << reasons);
  return *found;
}

/// Where a table of a run file begins, and where the next one does; the end of the text where it has none such.
std::pair<std::size_t, std::size_t> table_at(const std::string& text, const std::string& header) {
  const std::size_t begin =
      text.starts_with(header) ? 0 : std::min(text.find("\n" + header), text.size() - 1) + 1;
  return {begin, std::min(text.find("\n[", begin), text.size() - 1) + 1};
}

}  // namespace

std::string with_plugin(const std::string& text, const HostRun& other) {
  const plugins::KindRow& kind = *plugins::find_kind(other.plugin.manifest.kind);
  const bool list = kind.place == plugins::KindRow::Place::list;
  const std::string section(kind.section), header = (list ? "[[" : "[") + section + (list ? "]]\n" : "]\n");
  const std::string own = other.text();
  const auto [begin, end] = table_at(own, header);
  const auto [from, to] = list ? std::pair(text.size(), text.size()) : table_at(text, header);
  return text.substr(0, from) + own.substr(begin, end - begin) + text.substr(to);
}

const check::Materials& materials() {
  static const check::Materials made = [] {
    check::Materials all{&test::shipped(), check::write_samples(folder().path("samples"))};
    all.files.push_back(folder().write("arrays.npz", arrays()));
    all.files.emplace_back(TRAINYARD_SOURCE_DIR "/tests/support/rows.parquet");
    return all;
  }();
  return made;
}

const plugins::Registry& all_plugins() {
  static const auto all =
      plugins::Registry::scan({TRAINYARD_PLUGIN_DIR, TRAINYARD_BINARY_DIR "/tests/faulty"});
  return all;
}

config::Resolution resolve(const std::string& text, const std::vector<std::string>& sets, int ranks) {
  const std::string file = folder().write("run.toml", text);
  return config::resolve(config::load({file}, sets, {folder().path(""), ranks}), all_plugins());
}

std::vector<std::string> candidates(const OptionSpec& option, const Surroundings& host) {
  return check::candidates(option, host, materials());
}

const std::vector<plugins::PluginFile>& alone() {
  static const std::vector<plugins::PluginFile> found = [] {
    std::vector<plugins::PluginFile> files = test::shipped().files();
    std::erase_if(files, [](const plugins::PluginFile& file) {
      return needs_ranks(file) || plugins::find_kind(file.manifest.kind)->beside;
    });
    return files;
  }();
  return found;
}

const std::vector<plugins::PluginFile>& with_table() {
  static const std::vector<plugins::PluginFile> found = [] {
    std::vector<plugins::PluginFile> files = test::shipped().files();
    std::erase_if(files, [](const plugins::PluginFile& file) {
      return plugins::find_kind(file.manifest.kind)->section.empty();
    });
    return files;
  }();
  return found;
}

std::vector<plugins::PluginFile> drawn(const std::vector<plugins::PluginFile>& files) {
  static const char* const list = std::getenv("TRAINYARD_DRAWN");
  if (list == nullptr) return files;
  const std::vector<std::string> named = test::lines(list);
  std::vector<plugins::PluginFile> found;
  for (const plugins::PluginFile& file : files)
    if (std::ranges::find(named, file.manifest.kind + " " + file.manifest.name) != named.end())
      found.push_back(file);
  INFO(list);
  REQUIRE(!found.empty());
  return found;
}

const HostRun& host_run(const plugins::PluginFile& plugin) {
  static std::map<std::string, HostRun> found;
  const auto known = found.find(plugin.path);
  return known != found.end() ? known->second : found.emplace(plugin.path, search(plugin)).first->second;
}

Outcome train_shortly(const std::string& text, const std::vector<std::string>& sets,
                      const plugins::Registry& registry) {
  config::RunConfig config = test::valid(text, sets, registry);
  const test::TempFolder runs;
  config.run.output_dir = runs.path("run");
  train::TrainOptions options;
  options.quiet = true;
  options.resolved_toml = config::toml_file(config.resolved);
  const int code = train::train_command(config, registry, options);
  Outcome outcome = outcome_of(config.run.output_dir);
  CHECK(outcome.exit_code == code);
  return outcome;
}

Outcome outcome_of(const std::string& run_folder) {
  const auto result = nlohmann::json::parse(test::read_file(run_folder + "/result.json"));
  const auto text_of = [](const nlohmann::json& value) {
    return value.is_null() ? "" : value.get<std::string>();
  };
  Outcome outcome;
  outcome.exit_code = result["exit_code"];
  outcome.model = text_of(result["digest"]["model"]);
  outcome.optimizer = text_of(result["digest"]["optimizer"]);
  outcome.error = text_of(result["error"]);
  outcome.steps = result["steps"];
  for (const std::string& line : test::lines(run_folder + "/journal.jsonl"))
    outcome.swaps += nlohmann::json::parse(line)["what"] == "swap";
  if (const auto loss = result["metrics"].find("val/loss");
      loss != result["metrics"].end() && loss->is_number())
    outcome.loss = *loss;
  return outcome;
}

}  // namespace trainyard::contract
