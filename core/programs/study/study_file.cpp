#include "core/programs/study/study_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "core/cli/engine_library.hpp"
#include "core/cli/run_file.hpp"
#include "core/plugins/elf.hpp"
#include "core/plugins/loader.hpp"
#include "core/runfile/resolve.hpp"
#include "core/runfile/schema.hpp"
#include "core/runfile/suggest.hpp"
#include "core/runfile/tables.hpp"

namespace trainyard::cli {
namespace {

/// Returns the tables that a file may have if it is a study and no run file.
const std::vector<std::string>& own_tables() {
  static const std::vector<std::string> names = {"extends", "plugins", "schema", "study", "vars"};
  return names;
}

bool of_study(const std::string& key) {
  return std::ranges::find(own_tables(), key) != own_tables().end();
}

bool is_run_file(const config::Document& document) {
  return std::ranges::any_of(document.root.entries(), [](const Table::Entry& entry) {
    return !of_study(entry.key) && config::has_child(config::section(""), entry.key);
  });
}

bool names_run(const Table& study) {
  const Value* const run = study.find("run");
  return run != nullptr && !run->as<std::string>().empty();
}

/// Reports other tables beside a `run`, as nothing would read them.
void refuse_tables(config::Document& document, const Table& study) {
  if (!names_run(study)) return;
  for (const Table::Entry& entry : document.root.entries())
    if (!of_study(entry.key))
      document.findings.error("E104", entry.value.key_origin,
                              "unknown table `" + entry.key + "` in a study of another run file, " +
                                  study.find("run")->as<std::string>(),
                              config::nearest(entry.key, own_tables()).empty()
                                  ? "move it there, or leave out `run`: this file is the run file then"
                                  : config::suggestion(entry.key, own_tables()));
}

/// Returns the checked table; nothing, with findings, where it cannot be used.
std::optional<config::Checked> check(config::Document& document, const plugins::Registry& registry) {
  config::Findings& findings = document.findings;
  config::Checker checker(findings, /*percent=*/true);
  config::Tables tables(document, registry, checker, findings);
  tables.unknown_tables();
  const config::Section& section = config::section("study");
  const Value* const given = tables.given(section);
  if (given == nullptr) {
    tables.missing(section);
    return std::nullopt;
  }
  config::Checked checked = tables.slot(section, given, section.path);
  if (checked.filling.plugin == nullptr) return std::nullopt;
  refuse_tables(document, checked.options);
  return checked;
}

void print(const config::Findings& findings, bool json) {
  if (json && findings.failed())
    std::printf("%s\n", findings.json().c_str());
  else if (!findings.empty())
    std::fputs(findings.text(isatty(STDERR_FILENO) == 1).c_str(), stderr);
}

/// Returns whether a plugin uses the SDK's library or LibTorch, which it names, but not by their location.
bool needs_engine(const std::string& path) {
  constexpr std::size_t most = 1 << 24;
  const std::string names = plugins::ElfFile(path).section(".dynstr", most).value_or("");
  return names.find("libtrainyard.so") != std::string::npos || names.find("libtorch") != std::string::npos ||
         names.find("libc10") != std::string::npos;
}

/// Returns the changes of the run file that all trials have: those of the command line that are no study's, and
/// the study's own.
Value changes_of_trials(const std::vector<std::string>& given, const Table& study) {
  Array all;
  for (const std::string& change : given)
    if (!change.starts_with("study.")) all.emplace_back(change);
  if (const Value* const own = study.find("set"))
    for (const Value& change : own->as<Array>()) all.push_back(change);
  return Value(std::move(all));
}

/// Reads the options that every study has as the plugin will.
StudyOptions common_of(const Table& options) {
  StudyOptions common;
  fill(&common, options_of<StudyOptions>(), options);
  return common;
}

}  // namespace

std::optional<StudyFile> read_study_file(const StudyFileOptions& options) {
  config::Document document =
      config::load({options.file}, options.sets, config::Environment::of_process("../shared/data"));
  if (!document.readable) {
    print(document.findings, options.json);
    return std::nullopt;
  }
  const auto registry =
      plugins::Registry::scan(plugin_folders(options.plugin_folders, config::plugin_paths(document)));
  const bool is_run = is_run_file(document);
  std::optional<config::Checked> checked = check(document, registry);
  config::Findings findings = document.findings;
  const bool itself = is_run && checked && !names_run(checked->options);
  if (itself) findings = config::resolve(std::move(document), registry).findings;  // all has to be valid
  print(findings, options.json);
  if (!checked || findings.failed()) return std::nullopt;
  if (itself) {
    checked->options.set("run", Value(std::filesystem::absolute(options.file).lexically_normal().string()));
    checked->options.set("set", changes_of_trials(options.sets, checked->options));
  }
  StudyFile file{.name = std::filesystem::path(options.file).stem().string(),
                 .plugin = *checked->filling.plugin,
                 .options = {},
                 .common = {}};
  file.options = std::move(checked->options);
  file.common = common_of(file.options);
  if (!file.common.launch.empty() && file.common.launch.find("{command}") == std::string::npos)
    throw ConfigError(
        "study.launch = \"" + file.common.launch +
        "\" has no {command}, in whose place the trial's command is put: as \"srun -N1 {command}\"");
  return file;
}

std::unique_ptr<Study> make_study(const StudyFile& file) {
  if (needs_engine(file.plugin.path)) engine();  // the engine brings both libraries
  const plugins::LoadedPlugin plugin = plugins::load(file.plugin);
  auto made = plugin.create(file.options);
  return std::unique_ptr<Study>(static_cast<Study*>(made.plugin.release()));
}

}  // namespace trainyard::cli
