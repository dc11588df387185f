#include "core/cli/run_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include <trainyard/error.hpp>

#include "core/cli/engine_library.hpp"
#include "core/cli/run_state.hpp"
#include "core/runfile/at_path.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/rank_place.hpp"

namespace trainyard::cli {
namespace {

void require_folder(const std::string& folder, const char* given_by) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw ConfigError(std::string(given_by) + " names " + folder +
                      ", which is no folder of plugins: correct it");
}

/// Replaces a run by its file and keeps its folder, unless a new name or output_dir makes it another run.
void take_run(RunFileOptions& options) {
  const std::string file = run_file_of(options.files.front());
  if (file == options.files.front()) return;
  options.files.front() = file;
  const bool other = std::ranges::any_of(options.sets, [](const std::string& set) {
    return set.starts_with("run.name=") || set.starts_with("run.output_dir=");
  });
  if (!other)
    options.sets.insert(
        options.sets.begin(),
        "run.output_dir=" + config::toml_text(Value(std::filesystem::path(file).parent_path().string())));
}

/// Removes the compressor, with a warning, and its planned swaps where a run that several ranks began is
/// resumed with a single rank, which has no gradients to sum.
void leave_out_compressor(config::Document& document) {
  constexpr const char* slot = "distributed.compressor";
  const Value* const compressor = config::value_at(document.root, slot);
  const auto* const resume = config::at_path<std::string>(document.root, "run.resume");
  if (!document.trains || document.ranks > 1 || compressor == nullptr || resume == nullptr ||
      *resume != "must")
    return;
  document.findings.warning("E303", compressor->origin,
                            std::string(slot) + " is left out: a single rank has no gradients to sum",
                            "start it with --ranks N to keep it");
  document.root.find("distributed")->as<Table>().erase("compressor");
  Value* const swaps = document.root.find("swap");
  if (swaps == nullptr || swaps->get_if<Array>() == nullptr) return;
  std::erase_if(swaps->as<Array>(), [&](const Value& each) {
    const auto* const table = each.get_if<Table>();
    const auto* const of = table == nullptr ? nullptr : config::at_path<std::string>(*table, "slot");
    return of != nullptr && *of == slot;
  });
}

}  // namespace

std::vector<std::string> plugin_folders(const std::vector<std::string>& given,
                                        const std::vector<std::string>& of_run) {
  for (const std::string& folder : given) require_folder(folder, "--plugins");
  std::vector<std::string> folders = given;
  folders.insert(folders.end(), of_run.begin(), of_run.end());
  if (const char* variable = std::getenv("TRAINYARD_PLUGINS")) {
    std::stringstream list(variable);
    for (std::string folder; std::getline(list, folder, ':');) {
      if (folder.empty()) continue;
      require_folder(folder, "TRAINYARD_PLUGINS");
      folders.push_back(folder);
    }
  }
  folders.push_back(home() + "/lib/trainyard/plugins");
  return folders;
}

std::optional<RunFile> read_run_file(RunFileOptions options) {
  take_run(options);
  config::Environment environment = config::Environment::of_process("../shared/data");
  if (options.ranks > 0 && environment.ranks > 1)
    throw ConfigError("--ranks beside WORLD_SIZE in the environment: torchrun has started the ranks already");
  if (options.ranks > 0) environment.ranks = environment.local_ranks = options.ranks;
  config::Document document = config::load(options.files, options.sets, environment, options.tool);
  document.trains = options.trains || document.ranks > 1;
  leave_out_compressor(document);
  plugins::Registry registry =
      plugins::Registry::scan(plugin_folders(options.plugin_folders, config::plugin_paths(document)));
  config::Resolution resolution = config::resolve(std::move(document), registry);
  if (options.json)
    std::printf("%s\n", resolution.findings.json().c_str());
  else if (!resolution.findings.empty() &&
           (resolution.findings.failed() || config::RankPlace::of_process().rank == 0))
    std::fputs(resolution.findings.text(isatty(STDERR_FILENO) == 1).c_str(), stderr);
  if (resolution.findings.failed() || !resolution.config) return std::nullopt;
  return RunFile{std::move(registry), std::move(*resolution.config), std::move(resolution.findings)};
}

}  // namespace trainyard::cli
